"""Gold word alignments: the links of one pair, and their range."""

from dataclasses import dataclass

from attendo.data.pharaoh import Link
from attendo.errors import DataError, MessagePart


@dataclass(frozen=True)
class GoldLinks:
    """Gold links of one pair, between its words, or between the model's tokens if the words are None."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()
    source_words: tuple[str, ...] | None = None
    target_words: tuple[str, ...] | None = None


def check_link_range(gold: GoldLinks, sources: int, targets: int, location: MessagePart | str) -> None:
    """Raise a `DataError` for a link to a word or token beyond the sentence."""
    unit = "tokens" if gold.source_words is None else "words"
    for source, target in sorted(gold.sure | gold.possible):
        if source >= sources or target >= targets:
            hint = (
                "give links between words (--links words)"
                if unit == "tokens"
                else "count from 0, or use --links tokens if the links are between the model's tokens"
            )
            raise DataError(
                "gold_link_outside_sentence",
                place=location,
                source=source,
                target=target,
                sources=sources,
                targets=targets,
                unit=unit,
                fix=hint,
            )
