"""Training and test files of a recipe, their checksums, and atomic writing of text files."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from attendo import atomic_files
from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import read_rows
from attendo.data.filtering import find_text_fault
from attendo.errors import DataError, UsageError
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import make_test_corpus

NamedFiles = dict[str, Path]  # by their names in the run file, which do not change if a data set is moved


def list_training_files(data: DataConfig) -> NamedFiles:
    """Return the training and validation files of a run."""
    return _map_names_to_paths(_list_training_paths(data.replace(folder=None)), _list_training_paths(data))


def list_test_files(config: RunConfig) -> NamedFiles:
    """Return the test files of a recipe."""
    without_folder = config.replace(data=config.data.replace(folder=None))
    names, paths = (
        [path for corpus in list_test_corpora(each) for path in _corpus_paths(corpus)]
        for each in (without_folder, config)
    )
    return _map_names_to_paths(names, paths)


def list_test_corpora(config: RunConfig) -> list[CorpusConfig]:
    """Return the texts of all tests with files. Each part of a test is a separate text."""
    tests = () if config.reproduce is None else config.reproduce.test
    apart = [test.for_part(part) for test in tests for part in test.parts] + [test for test in tests if not test.parts]
    found = [make_test_corpus(test, config.data) for test in apart]
    return [corpus for corpus in found if corpus is not None]


def read_complete_pairs(corpus: CorpusConfig) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a test. An invalid pair is an error: skipping it would change the score."""
    for row in read_rows(corpus):
        if (fault := find_text_fault(row)) is not None:
            raise DataError("test_row_invalid", corpus=corpus.name, row=row.number, fault=fault)
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


def _list_training_paths(data: DataConfig) -> list[Path]:
    if data.prepared is not None:
        return [data.prepared / "index.json"]  # contains the checksums of all other files
    return [
        *(path for each in (*data.training, *data.validation) for path in _corpus_paths(each)),
        *(path for files in data.text_files for path in files),
    ]


def _corpus_paths(corpus: CorpusConfig) -> list[Path]:
    return [path for path in (corpus.source, corpus.target, corpus.file) if path is not None]


def _map_names_to_paths(names: list[Path], paths: list[Path]) -> NamedFiles:
    return dict(zip(map(str, names), paths, strict=True))


def write_text_file(path: Path, text: str) -> None:
    """Write or replace a file atomically. The error names the path, and the bytes needed if the disk is full."""
    content = text.encode("utf-8", "backslashreplace")
    try:
        with atomic_files.explain_disk_full(path, len(content)):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.replace_file(path, content)
    except OSError as error:
        raise UsageError("reproduce_file_not_writable", path=path, reason=error.strerror) from None
