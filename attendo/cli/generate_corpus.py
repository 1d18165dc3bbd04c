"""`attendo generate --input FOLDER --output FOLDER`: generation for a corpus of shards, in one or several processes."""

import hashlib
import json
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from attendo.cli.decoding_options import read_glossary
from attendo.cli.language import current_language, say
from attendo.cli.output import OutputStyle, print_stderr
from attendo.cli.stdin import name_line_in_errors

if TYPE_CHECKING:
    from attendo.data.text_shards import Output
    from attendo.recipes.corpus_generation import Compute, CorpusGeneration, Window
    from attendo.recipes.corpus_manifest import Counts
    from attendo.text_model import Result

MIN_SECONDS = {True: 0.5, False: 30.0}  # between two lines of progress, on a terminal and elsewhere
# Options that may change between two calls. A line that was short enough has the same output with both values.
_FREE_OPTIONS = ("long_source",)


@dataclass(frozen=True)
class CorpusCommand:
    """What a worker has to know besides the shards."""

    model: Path
    ensemble: Sequence[Path]
    draft: Path | None
    device: str
    options: Mapping[str, Any]
    style: OutputStyle
    fields: Mapping[str, Any]  # of `ShardFields`

    def to_json(self) -> dict[str, Any]:
        content = {**asdict(self), "ensemble": list(map(str, self.ensemble)), "model": str(self.model)}
        return {**content, "draft": None if self.draft is None else str(self.draft)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        paths = {"model": Path(content["model"]), "ensemble": list(map(Path, content["ensemble"]))}
        draft = None if content["draft"] is None else Path(content["draft"])
        return cls(**{**content, **paths, "draft": draft, "style": OutputStyle(**content["style"])})

    def identify(self) -> dict[str, Any]:
        """Return what the outputs depend on: checksums of the models, the options, and the fields."""
        others = {"draft": [self.draft] if self.draft else [], "ensemble": self.ensemble}
        models = {name: list(map(compute_model_checksum, each)) for name, each in others.items() if each}
        options = {name: value for name, value in self.options.items() if name not in _FREE_OPTIONS}
        if "glossary" in options:
            options["glossary"] = read_glossary(options)["glossary"].checksum
        style = {"json": self.style.as_json, "alignments_of": "pieces" if self.style.by_piece else "words"}
        names = {"source": "source_field", "output": "output_field"}
        fields = {names.get(name, name): value for name, value in self.fields.items()}
        return {"model": compute_model_checksum(self.model), **models, **style, **fields, "options": options}

    def plan(self, shards: Sequence[Path], folder: Path, settings: Mapping[str, Any]) -> "CorpusGeneration":
        from attendo.data.text_shards import ShardFields
        from attendo.recipes.corpus_generation import CorpusGeneration

        return CorpusGeneration(folder, shards, ShardFields(**self.fields), settings)


def compute_model_checksum(folder: Path) -> str:
    """Return one checksum of all files that a model is loaded from."""
    from attendo.recipes.files import compute_checksums
    from attendo.runs.load import list_model_files

    checksums = compute_checksums({str(path): path for path in list_model_files(folder)})
    named = [(Path(path).name, checksum) for path, checksum in checksums.items()]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


class WindowGenerator:
    """A loaded model that writes the outputs of windows."""

    def __init__(self, command: CorpusCommand, work: "CorpusGeneration", worker: int = 0) -> None:
        from attendo.recipes.corpus_generation import WindowReader
        from attendo.runs.load import load_models

        device = _choose_device(command.device, worker)
        self._model = load_models(command.model, command.ensemble, command.draft, device)
        self._options = read_glossary(command.options)
        self._model.settings(**self._options)  # raises for options that the model does not have
        self._command, self._work = command, work
        self._reader = WindowReader(work.shards, work.fields)

    def generate(self, window: "Window") -> "Counts":
        """Generate the outputs of a window and write them. An error names the shard and the line."""
        from attendo.cli.generate import generate_results
        from attendo.data.text_shards import find_family, has_header

        path = self._work.shards[window.shard]
        texts = self._reader.read(window)
        header = has_header(path, self._work.fields)
        with name_line_in_errors(path, window.first_line + header, can_split=True):
            results = generate_results(self._model, texts, self._options)
        counts = self._count(results)
        style, is_text = self._command.style, find_family(path) == "text"
        outputs: Iterator[Output] = (
            list(style.format_lines(number, each)) if is_text else style.make_value(each)
            for number, each in enumerate(results, start=window.first_line)
        )
        self._work.write_part(window, outputs, counts)
        return counts

    def _count(self, results: "Sequence[Result]") -> "Counts":
        from attendo.recipes.corpus_manifest import Counts

        cut = 0 if self._model.continues_text else sum(each.cut for each in results)
        tokens = sum(len(each.ids) for each in results)
        return Counts(len(results), tokens, cut, sum(bool(each.unknown) for each in results))


def _choose_device(device: str, worker: int) -> str:
    """Return the GPU of a worker, if there are several."""
    import torch

    count = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    return f"cuda:{worker % count}" if count > 1 else device


def generate_corpus(
    command: CorpusCommand, given: str, folder: Path, num_workers: int | None, ray: str | None = None
) -> None:
    """Write an output shard for every shard, and show the progress on standard error. `ray`: address of a cluster."""
    from attendo import atomic_files
    from attendo.data.text_shards import list_shards
    from attendo.runs.run_folder import make_folder

    work = command.plan(list_shards(given), folder, command.identify())
    make_folder(folder)
    with atomic_files.folder_lock(folder):
        compute = _choose_compute(command, work, num_workers, ray)
        progress = _Progress()
        for number, _ in enumerate(work.begin(), start=1):
            progress.show(say("reading: {number:,} of {shards:,} shards", number=number, shards=len(work.shards)))
        progress.begin(*work.count_lines())
        for counts in work.run(compute):
            progress.add(counts)
        progress.clear()
        _report(work)


def _choose_compute(
    command: CorpusCommand, work: "CorpusGeneration", num_workers: int | None, ray: str | None
) -> "Compute":
    """Return a function that computes windows: on Ray, in worker processes, or in this process."""
    if ray is not None:
        from attendo.cli.corpus_ray import compute_on_ray

        return lambda windows: compute_on_ray(windows, command, work, ray, num_workers)
    if num_workers is not None and num_workers > 1:
        return lambda windows: _compute_in_workers(windows, command, work, num_workers)
    generator = WindowGenerator(command, work)  # before the shards are read: a wrong option is found at once
    return lambda windows: ((window, generator.generate(window)) for window in windows)


def _compute_in_workers(
    windows: "Iterator[Window]", command: CorpusCommand, work: "CorpusGeneration", num_workers: int
) -> "Generator[tuple[Window, Counts], None, None]":
    from attendo import atomic_files
    from attendo.recipes.corpus_generation import Window
    from attendo.recipes.corpus_manifest import Counts
    from attendo.recipes.corpus_workers import WorkerPool

    shared = {"command": command.to_json(), "shards": list(map(str, work.shards)), "folder": str(work.folder)}
    program = [sys.executable, "-P", "-m", "attendo.cli.corpus_worker"]
    with atomic_files.temporary_folder(work.folder / "logs") as logs:
        pool = WorkerPool(program, {**shared, "language": current_language()}, num_workers, logs)
        with closing(pool.run(asdict(window) for window in windows)) as answers:
            for answer in answers:
                yield Window(**answer["window"]), Counts(**answer["counts"])


def _report(work: "CorpusGeneration") -> None:
    found, shards = work.sum_outputs(), len(work.shards)
    text = "{lines:,} lines of {shards:,} shards written to {folder}"
    if shards == 1:
        text = "{lines:,} lines of 1 shard written to {folder}"
    print_stderr(say(text, lines=found.lines, shards=shards, folder=work.folder))
    if found.cut:
        print_stderr(say("{count:,} outputs cut at the length limit; see --max-length", count=found.cut))
    if found.unknown:
        print_stderr(say("{count:,} lines with words that are not in the vocabulary", count=found.unknown))


class _Progress:
    """Lines, speed and time left on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown_at = time.monotonic()

    def begin(self, total: int, done: int) -> None:
        from attendo.recipes.corpus_manifest import Counts

        self.clear()
        self._total, self._done, self._counts = total, done, Counts()
        self._started_at = time.monotonic()
        if done:
            text = "{done:,} of {total:,} lines were done by an earlier call"
            print_stderr(say(text, done=done, total=total))

    def add(self, counts: "Counts") -> None:
        from attendo.cli.progress import format_duration

        self._counts += counts
        seconds = max(time.monotonic() - self._started_at, 1e-9)
        done = self._done + self._counts.lines
        left = (self._total - done) * seconds / max(self._counts.lines, 1)
        text = "{done:,} of {total:,} lines, {speed:,.0f} tokens a second, {left} left"
        speed = self._counts.tokens / seconds
        self.show(say(text, done=done, total=self._total, speed=speed, left=format_duration(left)))

    def show(self, line: str) -> None:
        now = time.monotonic()
        if now - self._shown_at < MIN_SECONDS[self._terminal]:
            return
        self._shown_at = now
        if self._terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print_stderr(line)

    def clear(self) -> None:
        """Erase the line before other output and at the end."""
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
