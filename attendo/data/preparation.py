"""The passes over the windows of all corpora, which one process or several compute.

    PARTS/  identity        text and settings: the parts of another call are removed
            scan/           faults and keys of every window
            duplicates      a bit for each pair
            held-out.json   sources of the validation split
            tokenizers/     those of both sides
            encode/         ids and faults of every window

A process needs only this folder and the settings to compute any window.
"""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attendo import atomic_files
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, FileCorpus
from attendo.data.corpus_windows import Window, WindowLines, WindowReader, read_windows
from attendo.data.duplicates import DuplicateMarks, PairKeys, mark_duplicates
from attendo.data.preparation_parts import Part, PartFolder, Pass
from attendo.data.scan_pass import KeptPairs, ReservoirSample, TextPair, WindowScanner, source_keys
from attendo.data.write_pass import WindowEncoder, raise_changed
from attendo.text import Tokenizer
from attendo.text.factory import load_tokenizer, save_tokenizers

Tokenizers = tuple[Tokenizer, Tokenizer]
ComputePart = Callable[[Window, WindowLines], Part]
_DUPLICATES, _HELD_OUT, _TOKENIZERS, _SAMPLE = "duplicates", "held-out.json", "tokenizers", "sample.json"


@dataclass(frozen=True)
class ScannedText:
    """All windows, and the number of their pairs."""

    windows: Sequence[Window]  # corpus by corpus
    pairs: int

    def of_corpus(self, corpus: int) -> list[Window]:
        return [window for window in self.windows if window.corpus == corpus]


@dataclass(frozen=True)
class Preparation:
    """What a process has to know to compute windows."""

    corpora: Sequence[Corpus]  # for training, and at the end the one for validation, if there is one
    num_training: int
    settings: DataConfig
    seed: int
    parts: PartFolder

    @property
    def holds_out(self) -> bool:
        """Whether the validation pairs are held out from the training text."""
        return len(self.corpora) == self.num_training

    @cached_property
    def duplicates(self) -> DuplicateMarks:
        return DuplicateMarks(self.parts.path / _DUPLICATES)

    def list_files(self) -> list[tuple[str, int, int]]:
        """Return path, size and time of every file of the text."""
        configs = [corpus.config for corpus in self.corpora if isinstance(corpus, FileCorpus)]
        named = [path for each in configs for path in (each.source, each.target, each.file, each.alignments)]
        paths = [path for path in named if path is not None]
        files = [each for path in paths for each in (sorted(path.rglob("*")) if path.is_dir() else [path])]
        found = [(str(path), path.stat()) for path in files if path.exists()]
        return [(path, stat.st_size, stat.st_mtime_ns) for path, stat in found]

    def scan(self, workers: "Workers") -> Generator[int, None, ScannedText]:
        """Scan all windows. Yield the lines that are done."""
        found: list[Window] = []

        def read() -> Iterator[tuple[Window, WindowLines]]:
            for index, corpus in enumerate(self.corpora):
                for window, lines in read_windows(corpus, index):
                    found.append(window)
                    yield window, lines

        yield from self._run("scan", workers, read())
        windows, pairs = [], 0
        for window in found:
            windows.append(replace(window, first_pair=pairs))
            pairs += int(self.parts.read("scan", window).values["pairs"])
        if self.settings.drop_duplicates and not (path := self.parts.path / _DUPLICATES).exists():
            mark_duplicates(self._read_pair_keys(windows), pairs, path)
        return ScannedText(windows, pairs)

    def encode(self, scanned: ScannedText, workers: "Workers") -> Generator[int, None, None]:
        """Encode all windows. Yield the lines that are done."""
        yield from self._run("encode", workers, ((window, None) for window in scanned.windows))

    def _run(
        self, name: Pass, workers: "Workers", windows: Iterator[tuple[Window, WindowLines | None]]
    ) -> Generator[int, None, None]:
        """Compute the parts that are missing."""
        done = 0

        def skip_existing() -> Iterator[tuple[Window, WindowLines | None]]:
            nonlocal done
            for window, lines in windows:
                if self.parts.has(name, window):
                    done += window.lines
                else:
                    yield window, lines

        for window in workers.run(self, name, skip_existing()):
            done += window.lines
            yield done

    def _read_pair_keys(self, windows: Sequence[Window]) -> Iterator[tuple[int, PairKeys]]:
        """Yield the keys of the validation pairs first: a training pair that is equal to one of them is dropped."""
        for window in sorted(windows, key=lambda window: window.corpus < self.num_training):
            yield window.first_pair, self.parts.read("scan", window).arrays["pairs"]

    def find_duplicates(self, window: Window, part: Part) -> NDArray[np.bool_]:
        """Return whether each pair of a scanned window is dropped as a duplicate."""
        pairs = part.values["pairs"]
        if window.corpus >= self.num_training:
            return np.zeros(pairs, np.bool_)
        return self.duplicates.read(window.first_pair, pairs)

    def sample(self, scanned: ScannedText, held_out: frozenset[int], sample: ReservoirSample) -> list[TextPair]:
        """Return a sample of the training pairs, without held-out ones. The text is read again, but not parsed."""
        for index, corpus in enumerate(self.corpora[: self.num_training]):
            windows, lines_read = scanned.of_corpus(index), 0
            for number, (found, lines) in enumerate(read_windows(corpus, index)):
                lines_read += found.lines
                if number < len(windows) and found.lines == windows[number].lines:
                    sample.offer(self._list_kept(windows[number], lines))
            if lines_read != (lines_before := sum(window.lines for window in windows)):
                raise_changed(corpus, lines_before, lines_read)
        pairs = sample.pairs()
        if not held_out:
            return pairs
        keys = source_keys(self.seed, [source for source, _ in pairs]).tolist()
        return [pair for pair, key in zip(pairs, keys, strict=True) if key not in held_out]

    def _list_kept(self, window: Window, lines: WindowLines) -> KeptPairs:
        part = self.parts.read("scan", window)
        faults = [row for row, _ in part.values["faults"]]
        rows = np.delete(np.arange(part.values["rows"]), faults)
        return KeptPairs(lines, rows[~self.find_duplicates(window, part)], part.values["rows"] == window.lines)

    def write_held_out(self, keys: frozenset[int]) -> None:
        atomic_files.write(self.parts.path / _HELD_OUT, json.dumps(sorted(keys)).encode())

    def read_held_out(self) -> list[int]:
        keys: list[int] = json.loads((self.parts.path / _HELD_OUT).read_bytes())
        return keys

    def save_tokenizers(self, tokenizers: Tokenizers, sample_pairs: int) -> None:
        """Save the tokenizers for all processes."""
        path = self.parts.path / _TOKENIZERS
        with atomic_files.new_folder(path) if self.parts.durable else nullcontext(path) as new:
            new.mkdir(exist_ok=True)
            save_tokenizers(new, *tokenizers)
            (new / _SAMPLE).write_text(json.dumps(sample_pairs))

    def load_tokenizers(self) -> tuple[Tokenizers, int] | None:
        """Return the tokenizers and the number of pairs that they were trained on. None if they are not made yet."""
        folder = self.parts.path / _TOKENIZERS
        if not (folder / _SAMPLE).exists():
            return None
        joint = (folder / "joint.tokenizer.json").exists()
        source = load_tokenizer(folder, "joint" if joint else "source")
        sample_pairs: int = json.loads((folder / _SAMPLE).read_text())
        return (source, source if joint else load_tokenizer(folder, "target")), sample_pairs


class WindowComputer:
    """Computes the parts of windows in this process. It has no state that changes a result."""

    def __init__(self, work: Preparation, name: Pass) -> None:
        self._work, self._reader = work, WindowReader(work.corpora)
        self._compute = self._make_scan() if name == "scan" else self._make_encode()

    def compute(self, window: Window, lines: WindowLines | None = None) -> Part:
        """Return the part of a window. Its lines are read unless they are given."""
        return self._compute(window, self._reader.read(window) if lines is None else lines)

    def _make_scan(self) -> ComputePart:
        work = self._work
        scanner = WindowScanner(work.settings, work.seed, work.holds_out)
        return lambda window, lines: scanner.scan(lines, window.corpus < work.num_training)

    def _make_encode(self) -> ComputePart:
        work, loaded = self._work, self._work.load_tokenizers()
        assert loaded is not None, "they are saved before the second pass"
        encoder = WindowEncoder(work.settings, loaded[0], work.read_held_out())

        def encode(window: Window, lines: WindowLines) -> Part:
            scanned = work.parts.read("scan", window)
            is_training = window.corpus < work.num_training
            return encoder.encode(lines, scanned, work.find_duplicates(window, scanned), is_training)

        return encode


class Workers(Protocol):
    """Computes windows, in any order, and writes their parts."""

    def run(
        self, work: Preparation, name: Pass, windows: Iterator[tuple[Window, WindowLines | None]]
    ) -> Iterator[Window]: ...


@dataclass(frozen=True)
class LocalWorker:
    """Computes windows in this process. `add_size` is called with the bytes and lines of every encoded window."""

    add_size: Callable[[int, int], None] | None = None

    def run(
        self, work: Preparation, name: Pass, windows: Iterator[tuple[Window, WindowLines | None]]
    ) -> Iterator[Window]:
        computer: WindowComputer | None = None
        for window, lines in windows:
            computer = computer or WindowComputer(work, name)
            part = computer.compute(window, lines)
            if self.add_size is not None and name == "encode":
                self.add_size(sum(array.nbytes for array in part.arrays.values()), window.lines)
            work.parts.write(name, window, part)
            yield window
