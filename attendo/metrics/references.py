"""What outputs are held against: one reference for each, or several of which any is right."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from attendo.errors import UsageError

References = Sequence[str] | Sequence[Sequence[str]]
Ways = Sequence[tuple[str, ...]]  # of each line, all that are right


def ways(references: References) -> list[tuple[str, ...]]:
    if isinstance(references, str):
        raise UsageError("metric_texts_not_list")
    found = [(each,) if isinstance(each, str) else tuple(each) for each in references]
    if not all(found):
        raise UsageError("line_without_reference", line=found.index(()) + 1)
    return found


def every_text(right: Ways) -> list[str]:
    return [text for line in right for text in line]


def as_streams(right: Ways) -> list[list[Any]]:
    """As sacrebleu takes them: all first references, all second ones and so on; None where a line has fewer."""
    return [list(stream) for stream in zip_longest(*right)]


def counted(right: Ways) -> str:
    """For a signature, as sacrebleu writes it; nothing where each line has one."""
    numbers = {len(line) for line in right}
    if numbers == {1}:
        return ""
    return f"nrefs:{numbers.pop()}|" if len(numbers) == 1 else "nrefs:var|"
