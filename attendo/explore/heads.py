"""Numbers about every head of a model, as means over all tokens of a text, and which head aligns best."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from attendo.errors import DataError, UsageError
from attendo.explore.heads_looks import Looks, Pass, Sentence
from attendo.explore.readable import check_source
from attendo.model.heads import sites
from attendo.text_model import TextModel, TooLongError, evaluating
from attendo.text_model.grouping import of_like_length
from attendo.text_model.looking import AlignmentHead
from attendo.text_model.tracing import GREEDY, Pair

Order = Literal["entropy", "distance", "diagonality", "special", "alignment"]
SiteKind = Literal["cross", "encoder", "decoder"]
POSITIONS = 2048  # source positions read at once

_HIGHEST_FIRST = ("diagonality", "special", "agreement")


@dataclass(frozen=True)
class HeadNumbers:
    """One head; see `heads_numbers.summed` for what each number is."""

    site: str  # such as decoder.1.cross
    head: int  # from 0
    entropy: float  # in nats
    relative_entropy: float | None  # None where every row saw one token alone
    distance: float  # in tokens
    diagonality: float
    special: float
    largest: float
    agreement: float | None = None  # with the mean of all heads of cross-attention; of those alone
    error_rate: float | None = None  # against gold links, where there are any

    @property
    def kind(self) -> SiteKind:
        stack, _, kind = self.site.split(".")
        return "cross" if kind == "cross" else "encoder" if stack == "encoder" else "decoder"

    @property
    def layer(self) -> int:
        return int(self.site.split(".")[1])


@dataclass(frozen=True)
class HeadReport:
    """All heads, in the order in which they come in the network."""

    heads: tuple[HeadNumbers, ...]
    sentences: int
    source_tokens: int  # </s> included
    target_tokens: int  # </s> included
    gold_links: int  # sure ones
    last_layer_error_rate: float | None = None  # of the mean of its heads, which aligns where no head is stored

    @property
    def alignment(self) -> Literal["error_rate", "agreement"]:
        """Which of the two numbers the best alignment head has the best of."""
        return "error_rate" if self.gold_links else "agreement"

    @property
    def best(self) -> HeadNumbers:
        """The best alignment head; of equals, the first."""
        found = self.ranked("alignment")[0]
        if getattr(found, self.alignment) is None:
            raise DataError("no_alignable_target_token")
        return found

    @property
    def alignment_head(self) -> AlignmentHead:
        return AlignmentHead(self.best.layer, self.best.head)

    def number(self, order: Order) -> str:
        """The field that an order goes by."""
        return self.alignment if order == "alignment" else order

    def ranked(self, order: Order) -> list[HeadNumbers]:
        """Sharpest, nearest, most diagonal, most on special tokens or best aligned first; at the end those without."""
        if order not in get_args(Order):
            raise UsageError("unknown_head_order", orders=", ".join(get_args(Order)), order=order)
        name = self.number(order)
        sign = -1 if name in _HIGHEST_FIRST else 1

        def place(head: HeadNumbers) -> float:
            value = getattr(head, name)
            return math.inf if value is None else sign * value

        return sorted(self.heads, key=place)

    def as_json(self, order: Order) -> dict[str, Any]:
        best = self.best
        return {
            "sentences": self.sentences,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "gold_links": self.gold_links,
            "last_layer_error_rate": self.last_layer_error_rate,
            "sorted_by": self.number(order),
            "best_alignment_head": {
                "layer": best.layer,
                "head": best.head,
                self.alignment: getattr(best, self.alignment),
            },
            "heads": [{"layer": each.layer, "kind": each.kind, **vars(each)} for each in self.ranked(order)],
        }


@torch.inference_mode()
def measure_heads(model: TextModel, sentences: Iterable[Sentence], positions: int = POSITIONS) -> HeadReport:
    """The numbers of every head over these sentences; how many are read at once changes none of them."""
    given = list(sentences)
    if not given:
        raise DataError("no_sentences_for_heads")
    check_source(model)
    network = model.network
    read = [Pass.of(model, each, pair) for each, pair in zip(given, _pairs(model, given), strict=True)]
    looks = Looks()
    with evaluating(network):
        for group in of_like_length([each.length for each in read], positions):
            looks.add(network, [read[number] for number in group])
    heads = tuple(
        HeadNumbers(site=site, head=head, **looks.numbers(site, head))
        for site in sites(network.config)
        for head in range(network.config.num_heads)
    )
    tokens = [sum(len(getattr(each.pair, side)) for each in read) for side in ("source", "target")]
    return HeadReport(heads, len(given), tokens[0], tokens[1], looks.gold_links, looks.last_layer_error_rate)


def _pairs(model: TextModel, given: Sequence[Sentence]) -> list[Pair]:
    said = _said(model, given)
    pairs = [
        Pair.of(each.source, answer, model.generation, model.source_tokenizer, model.target_tokenizer)
        for each, answer in zip(given, said, strict=True)
    ]
    longest = model.runtime.longest
    for each, pair in zip(given, pairs, strict=True):
        tokens = max(len(pair.source), len(pair.target)) - 1
        if longest is not None and tokens > longest:
            raise DataError("sentence_exceeds_model_length", place=each.place, tokens=tokens, limit=longest)
    return pairs


def _said(model: TextModel, given: Sequence[Sentence]) -> list[Any]:
    """The targets, each a text that is given or an answer."""
    open_ones = [each for each in given if each.target is None]
    try:
        answers = iter(model.generate([each.source for each in open_ones], **GREEDY))
    except TooLongError as error:
        reason = str(error).partition(" has ")[2] or str(error)
        raise DataError("sentence_unreadable_by_model", place=open_ones[error.number].place, reason=reason) from None
    return [next(answers).best if each.target is None else each.target for each in given]
