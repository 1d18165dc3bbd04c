"""Generation for a corpus of shards that continues after a crash: every shard has an output shard of the same name.

    OUT/  NAME             a finished shard, in the format of the input
          manifest.jsonl   settings, inputs and finished shards (`corpus_manifest.py`)
          .parts/NAME/     the outputs of the windows of a shard that is not finished

A window is 2,048 lines of a shard. Its outputs are one part, which is renamed into place when it is complete. When all
parts of a shard are there, they are merged with the lines of the input. So whichever process computes a window, at
whatever time, the bytes are the same, and no line is lost or doubled.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from attendo import atomic_files
from attendo.data.text_shards import Output, ShardFields, read_sources, write_shard
from attendo.errors import DataError, UsageError
from attendo.recipes.corpus_manifest import FILE_NAME, Counts, Manifest, ShardInput, ShardOutput, read_shard_input
from attendo.recipes.files import compute_checksums, list_differences

WINDOW_LINES = 2048  # lines read, sorted by length and decoded together


@dataclass(frozen=True)
class Window:
    """Lines of a shard that are generated together."""

    shard: int
    number: int  # from 0

    @property
    def first_line(self) -> int:
        return self.number * WINDOW_LINES


Compute = Callable[[Iterator[Window]], Iterable[tuple[Window, Counts]]]  # writes the part of every window, in any order


@dataclass(frozen=True)
class CorpusGeneration:
    """The folder of a generated corpus, with its settings."""

    folder: Path
    shards: Sequence[Path]
    fields: ShardFields
    settings: Mapping[str, Any]  # model and options: another call must have the same

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest(self.folder)

    def begin(self) -> Iterator[Path]:
        """Check an earlier call of this work, or begin it. Yield every shard when its lines are counted."""
        atomic_files.remove_leftovers(self.folder)
        before = self.manifest.settings
        if before is None:
            self._check_new()
            self.manifest.begin(self.settings)
        elif other := list_differences(before, json.loads(json.dumps(self.settings))):
            raise UsageError("corpus_settings_differ", folder=self.folder, settings=", ".join(other))
        names = {path.name for path in self.shards}
        if missing := sorted(self.manifest.inputs.keys() - names):
            raise DataError("corpus_input_missing", folder=self.folder, path=self.manifest.inputs[missing[0]].path)
        for path in self.shards:
            self._begin_shard(path)
            yield path

    def _check_new(self) -> None:
        atomic_files.remove(self.folder / ".parts")
        for path in self.shards:
            if path.parent.resolve() == self.folder.resolve():
                raise UsageError("corpus_output_is_input", folder=self.folder)
            if (self.folder / path.name).exists() or path.name == FILE_NAME:
                raise UsageError("corpus_output_exists", path=self.folder / path.name)

    def _begin_shard(self, path: Path) -> None:
        """Count the lines of a new shard, or check that it is the one of an earlier call."""
        known = self.manifest.inputs.get(path.name)
        if known is None:
            if (self.folder / path.name).exists():
                raise UsageError("corpus_output_exists", path=self.folder / path.name)
            lines = sum(1 for _ in read_sources(path, self.fields))
            self.manifest.add_input(path.name, read_shard_input(path, lines))
        elif not _has_same_time(path, known):
            found = read_shard_input(path, known.lines)
            if found.sha256 != known.sha256:
                raise DataError("corpus_input_changed", folder=self.folder, path=path)
            self.manifest.add_input(path.name, found)
        output, target = self.manifest.outputs.get(path.name), self.folder / path.name
        if output is not None and not (target.is_file() and target.stat().st_size == output.bytes):
            del self.manifest.outputs[path.name]  # removed or cut by someone: generate it again

    def count_lines(self) -> tuple[int, int]:
        """Return the number of lines of all shards, and how many of them are done."""
        done = sum(output.counts.lines for output in self.manifest.outputs.values())
        for shard in self._list_unfinished():
            lines = self._lines(shard)
            missing = (min(WINDOW_LINES, lines - each.first_line) for each in self._list_missing(shard))
            done += lines - sum(missing)
        return sum(each.lines for each in self.manifest.inputs.values()), done

    def run(self, compute: Compute) -> Iterator[Counts]:
        """Compute all missing windows, and finish every shard whose windows are there. Yield the counts of windows."""
        left = {shard: len(self._list_missing(shard)) for shard in self._list_unfinished()}
        for shard in [shard for shard, windows in left.items() if not windows]:
            self._finish(shard)
        for shard in left:
            self._parts(shard).mkdir(parents=True, exist_ok=True)
        for window, counts in compute(each for shard in left for each in self._list_missing(shard)):
            left[window.shard] -= 1
            if not left[window.shard]:
                self._finish(window.shard)
            yield counts
        self.manifest.compact()
        atomic_files.remove(self.folder / ".parts")

    def write_part(self, window: Window, outputs: Iterable[Output], counts: Counts) -> None:
        """Write the outputs of a window atomically. A process that outlived its parent may write the same part."""
        path = self._part(window)
        rows = [asdict(counts), *outputs]
        content = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in rows).encode("utf-8")
        new = path.with_name(f"{atomic_files.TEMPORARY_PREFIX}{uuid4().hex}-{path.name}")
        with atomic_files.explain_disk_full(path, len(content)):
            atomic_files.write(new, content)
            atomic_files.move_into_place(new, path)

    def read_counts(self, window: Window) -> Counts | None:
        """Return the counts of a window whose part is written."""
        path = self._part(window)
        return _read_counts(path) if path.is_file() else None

    def sum_outputs(self) -> Counts:
        return sum((each.counts for each in self.manifest.outputs.values()), Counts())

    def _lines(self, shard: int) -> int:
        return self.manifest.inputs[self.shards[shard].name].lines

    def _parts(self, shard: int) -> Path:
        return self.folder / ".parts" / self.shards[shard].name

    def _part(self, window: Window) -> Path:
        return self._parts(window.shard) / f"{window.number:06}.jsonl"

    def _list_unfinished(self) -> list[int]:
        return [n for n, path in enumerate(self.shards) if path.name not in self.manifest.outputs]

    def _list_missing(self, shard: int) -> list[Window]:
        folder = self._parts(shard)
        found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        windows = range(-(-self._lines(shard) // WINDOW_LINES))
        return [Window(shard, number) for number in windows if f"{number:06}.jsonl" not in found]

    def _finish(self, shard: int) -> None:
        """Merge the parts of a shard with its input, note it in the manifest, and remove the parts."""
        path, name = self.shards[shard], self.shards[shard].name
        target = self.folder / name
        new = atomic_files.temporary_path(target)
        parts = sorted(self._parts(shard).glob("[0-9]*.jsonl"))
        counts = sum((_read_counts(each) for each in parts), Counts())
        with atomic_files.explain_disk_full(target, 0):
            write_shard(path, new, self.fields, (output for part in parts for output in _read_outputs(part)))
            if not _has_same_time(path, self.manifest.inputs[name]):
                raise DataError("corpus_input_changed", folder=self.folder, path=path)
            size, checksum = new.stat().st_size, compute_checksums({name: new})[name]
            atomic_files.move_into_place(new, target)
        self.manifest.add_output(name, ShardOutput(counts, size, checksum))
        atomic_files.remove(self._parts(shard))


class WindowReader:
    """Reads windows. Later windows of the same shard are read on from there, without a second pass."""

    def __init__(self, shards: Sequence[Path], fields: ShardFields) -> None:
        self._shards, self._fields = shards, fields
        self._shard, self._line = -1, 0  # the next line
        self._sources: Iterator[str] = iter(())

    def read(self, window: Window) -> list[str]:
        if window.shard != self._shard or window.first_line < self._line:
            self._sources = read_sources(self._shards[window.shard], self._fields)
            self._shard, self._line = window.shard, 0
        skipped = window.first_line - self._line
        texts = list(islice(self._sources, skipped, skipped + WINDOW_LINES))
        self._line = window.first_line + len(texts)
        return texts


def _has_same_time(path: Path, known: ShardInput) -> bool:
    found = path.stat()
    return (found.st_size, found.st_mtime_ns) == (known.bytes, known.modified)


def _read_counts(part: Path) -> Counts:
    with part.open(encoding="utf-8") as file:
        return Counts(**json.loads(next(file)))


def _read_outputs(part: Path) -> Iterator[Output]:
    with closing(part.open(encoding="utf-8")) as file:
        yield from (json.loads(line) for line in islice(file, 1, None))
