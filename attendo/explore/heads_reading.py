"""Files of sentences, their targets and their gold links, line by line beside each other."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from attendo.data.parallel import read_lines
from attendo.errors import DataError, MessagePart, UsageError
from attendo.explore.heads_gold import Gold, parse_links
from attendo.explore.heads_looks import Sentence

Unit = Literal["words", "tokens"]


def read_sentences(
    source: Path, target: Path | None = None, gold: Path | None = None, unit: Unit = "words"
) -> list[Sentence]:
    """The lines that are not empty, neither source nor target.

    Gold links count words, which white space separates, or the tokens of the model.
    """
    if gold is not None and target is None:
        raise UsageError("gold_without_target_file", path=gold)
    found = []
    paths = [path for path in (source, target, gold) if path is not None]
    for number, (text, *beside) in enumerate(_beside(paths), start=1):
        said = beside[0] if beside else None
        if not text.strip() or (said is not None and not said.strip()):
            continue
        links = _gold(text, beside, unit, MessagePart("line_of_file", path=gold, line=number))
        found.append(Sentence(text, said, links, MessagePart("line_of_file", path=source, line=number)))
    if gold is not None and not any(each.gold and each.gold.sure for each in found):
        raise DataError("no_sure_gold_link", path=gold)
    if not found:
        raise DataError("no_usable_source_line", path=source)
    return found


def _beside(paths: list[Path]) -> Iterator[tuple[str, ...]]:
    for number, lines in enumerate(zip_longest(*map(read_lines, paths)), start=1):
        if None in lines:
            short = paths[lines.index(None)]
            long = next(path for path, line in zip(paths, lines, strict=True) if line is not None)
            raise DataError(
                "file_line_counts_differ", short=short, short_lines=number - 1, long=long, long_lines=number
            )
        yield lines


def _gold(source: str, beside: list[str], unit: Unit, place: MessagePart) -> Gold | None:
    if len(beside) < 2:
        return None
    target, line = beside
    sure, possible = parse_links(line, place)
    if unit == "tokens":
        return Gold(sure, possible)
    return Gold(sure, possible, tuple(source.split()), tuple(target.split()))
