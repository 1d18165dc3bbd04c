"""Sequence-level distillation (Kim and Rush, 2016): a teacher's translations replace the targets of a corpus.

A teacher repeats the targets that it was trained on. So the corpus is split into folds, and every fold is translated by
a teacher that was trained on the other folds. Equal sources are in the same fold.

    OUT/  distill.json   the command's settings: another command cannot continue it
          folds/N.source, folds/N.target         the text of a fold
          outputs/N.txt                          its translations
          teachers/N/    the run of the teacher that has not seen fold N
          source.txt, target.txt                 the result, in the order of the corpus
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from attendo import atomic_files
from attendo.data.corpus_files import read_lines, read_parallel_lines
from attendo.errors import DataError, UsageError
from attendo.metrics import Score, score
from attendo.model_files import format_json, read_json
from attendo.recipes.files import compute_checksums, list_differences, write_text_file
from attendo.runs.config import RunConfig
from attendo.text_model import TextModel

_SIDES = ("source", "target")
_BLOCK_LINES = 2048  # lines translated in one call and written together
_SCORED_LINES = 20_000  # lines of the reported score
# Settings of [data] that describe the training text of a run. The others are those of the teachers too.
_TEXT_SETTINGS = {"task", "pairs", "corpora", "source", "target", "file", "source_field", "target_field"}


@dataclass(frozen=True)
class Distillation:
    """The folder of a distillation, with its settings."""

    folder: Path
    source: Path
    target: Path
    model_files: Sequence[Path]  # identify the teacher: settings of a run, manifest, or files of a foreign model
    num_folds: int
    options: Mapping[str, Any]  # of the teachers' search

    @property
    def outputs(self) -> tuple[Path, Path]:
        """The two files of the result."""
        return self.folder / "source.txt", self.folder / "target.txt"

    def fold_file(self, fold: int, side: str) -> Path:
        return self.folder / "folds" / f"{fold}.{side}"

    def output_file(self, fold: int) -> Path:
        return self.folder / "outputs" / f"{fold}.txt"

    def teacher_folder(self, fold: int) -> Path:
        return self.folder / "teachers" / str(fold)

    def identify(self) -> dict[str, Any]:
        """Return the settings with the checksums of the files. Raise if one cannot be read."""
        names = ["model"] if len(self.model_files) == 1 else [f"model {path.name}" for path in self.model_files]
        files = {"source": self.source, "target": self.target, **dict(zip(names, self.model_files, strict=True))}
        return {"folds": self.num_folds, "options": dict(self.options), **compute_checksums(files)}

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings, or check that they are those of an earlier call that has split the text."""
        path = self.folder / "distill.json"
        before = read_json(path) if (self.folder / "folds").exists() else settings
        if other := list_differences(before, settings):
            raise UsageError("distillation_settings_differ", folder=self.folder, settings=", ".join(other))
        write_text_file(path, format_json(dict(settings)))

    def split(self) -> int:
        """Write the text of every fold, unless it is there. Return the number of lines."""
        folder = self.folder / "folds"
        if folder.exists():
            return sum(1 for fold in range(self.num_folds) for _ in read_lines(self.fold_file(fold, "source")))
        counts = [0] * self.num_folds
        with atomic_files.new_folder(folder) as new, ExitStack() as stack:
            files = [
                [stack.enter_context((new / f"{fold}.{side}").open("w", encoding="utf-8")) for side in _SIDES]
                for fold in range(self.num_folds)
            ]
            for pair in read_parallel_lines(self.source, self.target):
                fold = choose_fold(pair[0], self.num_folds)
                counts[fold] += 1
                for file, line in zip(files[fold], pair, strict=True):
                    file.write(f"{line}\n")
            if not any(counts):
                raise DataError("file_is_empty", path=self.source)
            if 0 in counts:
                raise DataError("distillation_fold_empty", path=self.source, lines=sum(counts), folds=self.num_folds)
        return sum(counts)

    def teacher_config(self, config: RunConfig, fold: int) -> RunConfig:
        """Return the settings of the teacher of a fold: those of a run, with the text of the other folds."""
        others = [each for each in range(self.num_folds) if each != fold]
        source, target = ([self.fold_file(each, side).absolute() for each in others] for side in _SIDES)
        data = config.data.model_dump(exclude_unset=True)
        kept = {name: value for name, value in data.items() if name not in _TEXT_SETTINGS}
        values = {**config.model_dump(exclude_unset=True), "data": {**kept, "source": source, "target": target}}
        values.pop("reproduce", None)
        return RunConfig(**values)

    def translate(self, model: TextModel, fold: int) -> Iterator[int]:
        """Translate a fold. Yield the number of lines done, beginning with those of an earlier call."""
        path = self.output_file(fold)
        path.parent.mkdir(exist_ok=True)
        done = atomic_files.truncate_to_lines(path)
        yield done
        lines = islice(read_lines(self.fold_file(fold, "source")), done, None)
        while texts := list(islice(lines, _BLOCK_LINES)):
            results = model.generate(texts, **self.options)
            atomic_files.append(path, "".join(f"{_to_line(each.text)}\n" for each in results).encode("utf-8"))
            done += len(texts)
            yield done

    def merge(self) -> int:
        """Write source.txt and target.txt in the order of the corpus. Return the number of lines."""
        outputs = [read_lines(self.output_file(fold)) for fold in range(self.num_folds)]
        count = 0
        temporary = [atomic_files.temporary_path(path) for path in self.outputs]
        with temporary[0].open("w", encoding="utf-8") as sources, temporary[1].open("w", encoding="utf-8") as targets:
            for source in read_lines(self.source):
                sources.write(f"{source}\n")
                targets.write(f"{next(outputs[choose_fold(source, self.num_folds)])}\n")
                count += 1
        for new, path in zip(temporary, self.outputs, strict=True):
            atomic_files.move_into_place(new, path)
        return count

    def score(self) -> Score:
        """Return BLEU of the new targets against the corpus. A teacher that memorised has far more than on a test."""
        pairs = list(islice(read_parallel_lines(self.outputs[1], self.target), _SCORED_LINES))
        return score("bleu", [output for output, _ in pairs], [reference for _, reference in pairs])


def choose_fold(source: str, num_folds: int) -> int:
    """Return the fold of a source, which depends only on its text."""
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest()) % num_folds


def _to_line(text: str) -> str:
    """Return the text without line breaks, which would shift the lines after it."""
    return " ".join(text.splitlines())
