"""The `attendo align` command: word alignments of given pairs, or their error rate against gold links."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.cli.language import say
from attendo.cli.options import Device, ModelFolder, Threads
from attendo.cli.output import print_stderr
from attendo.errors import DataError, MessagePart, UsageError

if TYPE_CHECKING:
    from attendo.data.pharaoh import Link
    from attendo.metrics.alignment_error import LinkCounts
    from attendo.text_model.word_alignment import PairWords, WordAlignment

    GoldLine = tuple[frozenset[Link], frozenset[Link]]  # sure and possible links of a pair

BUILTIN = "builtin"
BUILTIN_PAIRS = 1000
PAIRS_AT_ONCE = 1024


def align(
    model: ModelFolder,
    source: Annotated[Path | None, typer.Option(help="Source text, one sentence per line (plain, .gz or .xz).")] = None,
    target: Annotated[Path | None, typer.Option(help="Target text, line by line.")] = None,
    reverse: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Model of the other direction; its links are merged.")
    ] = None,
    symmetrise: Annotated[
        Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"] | None,
        typer.Option(help="Merge the links of target words with those of source words."),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Gold links, such as 0-0 1-2 3?4 (? is possible, not sure): print the error rate; builtin: those of "
            "the built-in task.",
        ),
    ] = None,
    links: Annotated[
        Literal["words", "tokens"], typer.Option(help="Units of the links: words between spaces, or tokens.")
    ] = "words",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, or with --gold one with the error rate.")
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the word alignment of every pair of lines, such as 0-0 1-2.

    Source words come first, and words are counted from 0. Each target word is linked with the source word that the
    alignment head attends to most. --symmetrise also reads the links of the source words: from --reverse, or from the
    columns of the same attention.
    """
    from attendo.interop.load import load_torch_model

    expected: list[GoldLine] | None = None
    if gold == BUILTIN and source is None and target is None:
        pairs, expected = _load_builtin()
    elif source is None or target is None:
        raise UsageError("align_files_missing")
    else:
        pairs = _read_pairs(source, target)
        expected = None if gold is None else _read_gold(Path(gold))
    text_model = load_torch_model(model, device)
    other = None if reverse is None else load_torch_model(reverse, device)
    found: list[WordAlignment] = []
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        block = pairs[first : first + PAIRS_AT_ONCE]
        aligned = text_model.align_words(block, other, symmetrise, links)
        found += aligned
        if expected is None:
            print(*(_format_json(each) if as_json else each for each in aligned), sep="\n")
    if expected is not None:
        _print_scores(_count_links(found, expected, Path(gold or "")), len(found), as_json)


def _read_pairs(source: Path, target: Path) -> "list[PairWords]":
    from attendo.data.corpus_files import read_parallel_lines
    from attendo.text_model.word_alignment import PairWords

    pairs = [
        PairWords(one, two, tuple(one.split()), tuple(two.split()), MessagePart("line_of_file", path=source, line=n))
        for n, (one, two) in enumerate(read_parallel_lines(source, target), start=1)
    ]
    if not pairs:
        raise DataError("file_is_empty", path=source)
    return pairs


def _read_gold(path: Path) -> "list[GoldLine]":
    """Return the sure and the possible links of each line."""
    from attendo.data.corpus_files import read_lines
    from attendo.data.pharaoh import parse_links

    return [
        parse_links(line, MessagePart("line_of_file", path=path, line=number))
        for number, line in enumerate(read_lines(path), start=1)
    ]


def _load_builtin() -> "tuple[list[PairWords], list[GoldLine]]":
    """Return the held-out pairs of the built-in task with their gold links."""
    from attendo.demo_task import BuiltinTask
    from attendo.text_model.word_alignment import PairWords

    task = BuiltinTask().heldout(BUILTIN_PAIRS)
    pairs = [PairWords(each.source, each.target, each.source_words, each.target_words) for each in task]
    return pairs, [(frozenset(each.alignment), frozenset()) for each in task]


def _count_links(
    found: "Sequence[WordAlignment]",
    gold: "Sequence[GoldLine]",
    path: Path,
) -> "LinkCounts":
    from attendo.explore.gold_alignment import GoldLinks, check_link_range
    from attendo.metrics.alignment_error import LinkCounts

    if len(found) != len(gold):
        raise DataError("gold_line_count_mismatch", path=path, lines=len(gold), pairs=len(found))
    total = LinkCounts()
    for number, (each, (sure, possible)) in enumerate(zip(found, gold, strict=True), start=1):
        place = MessagePart("line_of_file", path=path, line=number)
        sources, targets = each.source_words, each.target_words
        check_link_range(GoldLinks(sure, possible, sources, targets), len(sources), len(targets), place)
        total += LinkCounts.from_links(each.links, sure, possible)
    if not total.sure:
        raise DataError("no_sure_gold_link", path=path)
    return total


def _print_scores(counts: "LinkCounts", pairs: int, as_json: bool) -> None:
    names = ("error_rate", "precision", "recall")
    scores = {name: getattr(counts, name) for name in names}
    if as_json:
        print(json.dumps({"pairs": pairs, "links": counts.found, "gold_links": counts.sure, **scores}))
        return
    for name, value in scores.items():
        print(f"{say(name.replace('_', ' ')):12} {'-' if value is None else f'{value:.4f}'}")
    print_stderr(
        say(
            "{pairs:,} pairs, {links:,} links, {gold:,} sure gold links",
            pairs=pairs,
            links=counts.found,
            gold=counts.sure,
        )
    )


def _format_json(alignment: "WordAlignment") -> str:
    content = {
        "alignments": alignment.links,
        "source_words": alignment.source_words,
        "target_words": alignment.target_words,
    }
    return json.dumps(content, ensure_ascii=False)
