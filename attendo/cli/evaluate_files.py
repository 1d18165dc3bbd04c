"""What a model is scored on, read and checked before the long work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attendo.errors import DataError, UsageError


@dataclass(frozen=True)
class Lines:
    """Lines to translate, beside each all that is right, and its label where there are labels."""

    source: Path  # the file
    sources: list[str]
    references: list[tuple[str, ...]]
    labels: list[str] | None


def read_test(source: Path, references: Sequence[Path], by: Path | None) -> Lines:
    from attendo.data.parallel import read_lines

    sources = list(read_lines(source))
    read = [read_beside(source, sources, path) for path in references]
    labels = None if by is None else [line.strip() for line in read_beside(source, sources, by)]
    if not sources:
        raise DataError("source_file_empty", path=source)
    return Lines(source, sources, [_all_right(line) for line in zip(*read, strict=True)], labels)


def read_beside(source: Path, sources: Sequence[str], path: Path) -> list[str]:
    """The lines of a file, as many as the source has."""
    from attendo.data.parallel import read_lines

    lines = list(read_lines(path))
    if len(sources) != len(lines):
        raise DataError(
            "source_line_count_mismatch", source=source, source_lines=len(sources), path=path, lines=len(lines)
        )
    return lines


def read_other(other: Path | None, source: Path, sources: Sequence[str]) -> list[str] | None:
    """The lines of a file; a model has yet to write them."""
    if other is None or other.is_dir():
        return None
    if not other.exists():
        raise UsageError("comparison_not_found", path=other)
    return read_beside(source, sources, other)


def check_output(output: Path | None, inputs: Sequence[Path | None]) -> None:
    """It must not replace what is read, and it must be possible to write."""
    if output is None:
        return
    for path in inputs:
        if path is not None and output.exists() and output.samefile(path):
            raise UsageError("output_overwrites_input", output=output, path=path)
    output.open("a").close()


def _all_right(line: tuple[str, ...]) -> tuple[str, ...]:
    """An empty line in one of several files says that there is no further reference, unless all are empty."""
    return tuple(each for each in line if each.strip()) or line[:1]
