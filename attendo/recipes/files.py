"""Training and test files of a recipe, their checksums, and atomic writing of text files."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attendo import atomic_files
from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import read_rows
from attendo.data.filtering import find_text_fault
from attendo.data.table_files import list_table_files
from attendo.errors import DataError, LocalizedText, UsageError
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import make_test_corpus

NamedFiles = dict[str, Path]  # by their names in the run file, which do not change if a data set is moved


def list_training_files(data: DataConfig) -> NamedFiles:
    """Return the training and validation files of a run."""
    if data.prepared is not None:
        return _name_files([data.prepared / "index.json"], None)  # contains the checksums of all other files
    corpora = [path for each in (*data.training, *data.validation) for path in _corpus_paths(each)]
    return _name_files([*corpora, *(path for files in data.text_files for path in files)], data.folder)


def list_test_files(config: RunConfig) -> NamedFiles:
    """Return the test files of a recipe."""
    paths = [path for corpus in list_test_corpora(config) for path in _corpus_paths(corpus)]
    return _name_files(paths, config.data.folder)


def list_test_corpora(config: RunConfig) -> list[CorpusConfig]:
    """Return the texts of all tests with files. Each part of a test is a separate text."""
    tests = () if config.reproduce is None else config.reproduce.test
    found = [make_test_corpus(one, config.data) for test in tests for one in test.split_parts().values()]
    return [corpus for corpus in found if corpus is not None]


def read_complete_pairs(corpus: CorpusConfig) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a test. An invalid pair is an error: skipping it would change the score."""
    for row in read_rows(corpus):
        if (fault := row.fault or find_text_fault(row.source, row.target)) is not None:
            raise DataError("test_row_invalid", corpus=corpus.name, row=row.number, fault=LocalizedText(fault))
        yield row.source, row.target


def compute_checksums(files: Mapping[str, Path]) -> dict[str, str]:
    """Return SHA-256 checksums by name."""
    found = {}
    for name, path in files.items():
        try:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError("file_read_failed", path=path, reason=error.strerror) from None
    return found


def list_differences(before: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that differ, among them those of the search in `options`."""
    old, new = ({**each, **each.get("options", {})} for each in (before, settings))
    return [name for name in {**new, **old} if name != "options" and old.get(name) != new.get(name)]


def _corpus_paths(corpus: CorpusConfig) -> list[Path]:
    paths = [path for path in (corpus.source, corpus.target, corpus.file) if path is not None]
    return [file for path in paths for file in (list_table_files(path) if path.is_dir() else [path])]


def _name_files(paths: list[Path], folder: Path | None) -> NamedFiles:
    return {str(path.relative_to(folder) if folder and path.is_relative_to(folder) else path): path for path in paths}


def write_text_file(path: Path, text: str) -> None:
    """Write or replace a file atomically. The error names the path, and the bytes needed if the disk is full."""
    content = text.encode("utf-8", "backslashreplace")
    try:
        with atomic_files.explain_disk_full(path, len(content)):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.replace_file(path, content)
    except OSError as error:
        raise UsageError("reproduce_file_not_writable", path=path, reason=error.strerror) from None
