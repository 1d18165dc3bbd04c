"""Texts to ask for: the lines of a file, or sentences of the built-in task."""

from itertools import islice
from pathlib import Path

from attendo.data.parallel import read_lines
from attendo.errors import DataError
from attendo.recipes.builtin import BuiltinTask


def texts_of(path: Path | None, count: int = 500) -> list[str]:
    """At most so many that are not empty."""
    lines = (pair.source for pair in BuiltinTask().train()) if path is None else read_lines(path)
    found = list(islice((line for line in lines if line.strip()), count))
    if not found:
        raise DataError("file_has_no_text", path=path)
    return found
