"""Passes over sentences that are known, and what every head looked at in them, summed up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.errors import MessagePart, UsageError
from attendo.explore.alignment import LinkCounts
from attendo.explore.heads_gold import Gold, check_inside, words_of_tokens
from attendo.explore.heads_numbers import Rows, summed
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS
from attendo.text_model import TextModel
from attendo.text_model.tracing import Pair

LAST_LAYER = "mean of the last layer"  # stands for a site


_UNNAMED = MessagePart("unnamed_sentence")


@dataclass(frozen=True)
class Sentence:
    """A source, and its target; None stands for the model's own answer, decoded greedily."""

    source: str
    target: str | None = None
    gold: Gold | None = None
    place: MessagePart | str = _UNNAMED  # what a message calls it, such as `dev.en line 3`


@dataclass(frozen=True)
class Pass:
    """A pair to be read, and the unit that each token but eos counts as in gold links: its word, or itself.

    A token that belongs to no word, such as that of a language, has the unit None.
    """

    pair: Pair
    gold: Gold | None
    source_units: Sequence[int | None]
    target_units: Sequence[int | None]

    @staticmethod
    def of(model: TextModel, sentence: Sentence, pair: Pair) -> "Pass":
        gold, place = sentence.gold, sentence.place
        if gold is not None and sentence.target is None:
            raise UsageError("gold_without_target_sentence", place=place)
        before, begin = len(model.generation.source_prefix), len(model.generation.target_prefix)
        read = Pass(pair, gold, range(len(pair.source) - 1), range(len(_said(pair))))
        if gold is None or gold.source_words is None or gold.target_words is None:
            check_inside(gold or Gold(frozenset()), len(read.source_units), len(read.target_units), place)
            return read
        check_inside(gold, len(gold.source_words), len(gold.target_words), place)
        sources = words_of_tokens(model.source_tokenizer, sentence.source, gold.source_words, place)
        targets = words_of_tokens(model.target_tokenizer, sentence.target or "", gold.target_words, place)
        return replace(read, source_units=[*[None] * before, *sources], target_units=[*[None] * begin, *targets])

    @property
    def example(self) -> Example:
        """Without eos, which joins it in a batch."""
        return Example(self.pair.source[:-1], self.said)

    @property
    def said(self) -> Sequence[int]:
        return _said(self.pair)

    @property
    def length(self) -> int:
        return self.example.length


class Looks:
    """Sums over sentences, head by head."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[Tensor, int]] = {}
        self._agreed: dict[str, Tensor] = {}
        self._counted = 0  # target tokens, </s> not among them
        self._links: dict[tuple[str, int], LinkCounts] = {}

    @property
    def gold_links(self) -> int:
        return next((each.sure for each in self._links.values()), 0)

    def add(self, network: Transformer, passes: Sequence[Pass]) -> None:
        batch = collate([each.example for each in passes]).to(network.device)
        shapes = _shapes(batch, passes)
        looked: dict[str, Int[Tensor, "B H T"]] = {}
        together: dict[str, Int[Tensor, "B 1 T"]] = {}
        total = torch.zeros(())

        def tap(site: str, weights: Float[Tensor, "B H T S"]) -> None:
            nonlocal total
            for name, (values, count) in summed(weights, shapes[_kind(site)]).items():
                before, counted = self._sums.get((site, name), (0.0, 0))
                self._sums[site, name] = before + values, counted + count
            if site.endswith(".cross"):
                looked[site] = weights.argmax(dim=-1).cpu()
                together[LAST_LAYER] = weights.float().mean(dim=1, keepdim=True).argmax(dim=-1).cpu()
                total = total + weights.double().sum(dim=1).cpu()

        network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
        for row, each in enumerate(passes):
            self._agree(each, total[row], {site: places[row] for site, places in looked.items()})
            self._link(each, {site: places[row] for site, places in {**looked, **together}.items()})

    @property
    def last_layer_error_rate(self) -> float | None:
        """Of the mean of the heads of the last layer, as if it were one head."""
        return self._links.get((LAST_LAYER, 0), LinkCounts()).error_rate

    def numbers(self, site: str, head: int) -> dict[str, Any]:
        """The means of one head."""
        found: dict[str, float | None] = {}
        for (here, name), (values, count) in self._sums.items():
            if here == site:
                found[name] = float(values[head]) / count if count else None
        if site in self._agreed:
            found["agreement"] = float(self._agreed[site][head]) / self._counted
        if (site, head) in self._links:
            found["error_rate"] = self._links[site, head].error_rate
        return found

    def _agree(self, read: Pass, total: Float[Tensor, "T S"], looked: dict[str, Int[Tensor, "H T"]]) -> None:
        """Whether a head looks most where all of them together do, the end of the source left out.

        Many heads rest on </s>. Were it not left out, the head that always rests would agree best.
        """
        count, words = len(read.said), len(read.pair.source) - 1
        if not count or not words:
            return
        meant = total[:count, :words].argmax(dim=-1)
        self._counted += count
        for site, places in looked.items():
            agreed = (places[:, :count] == meant).sum(dim=-1)
            self._agreed[site] = self._agreed.get(site, torch.zeros_like(agreed)) + agreed

    def _link(self, read: Pass, looked: dict[str, Int[Tensor, "H T"]]) -> None:
        """Of each token of the target a link to the token looked at most, none where that is </s>."""
        if read.gold is None:
            return
        for site, places in looked.items():
            for head, row in enumerate(places[:, : len(read.said)].tolist()):
                found = {
                    (read.source_units[source], target)
                    for source, target in zip(row, read.target_units, strict=True)
                    if source < len(read.source_units)
                }
                links = {(source, target) for source, target in found if source is not None and target is not None}
                counts = LinkCounts.of(links, read.gold.sure, read.gold.possible)
                self._links[site, head] = self._links.get((site, head), LinkCounts()) + counts


def _said(pair: Pair) -> Sequence[int]:
    """The target without eos, which an answer that was cut does not have."""
    return pair.target[:-1] if pair.target and pair.target[-1] == EOS else pair.target


def _shapes(batch: Batch, passes: Sequence[Pass]) -> dict[str, Rows]:
    sources, targets = ([len(getattr(each.pair, side)) for each in passes] for side in ("source", "target"))
    marks = torch.tensor([BOS, EOS], device=batch.source_ids.device)
    source, target = (torch.isin(ids, marks) for ids in (batch.source_ids, batch.target_ids))
    return {
        "encoder.self": Rows(sources, sources, source, causal=False),
        "decoder.self": Rows(targets, targets, target, causal=True),
        "decoder.cross": Rows(targets, sources, source, causal=False),
    }


def _kind(site: str) -> str:
    stack, _, kind = site.split(".")
    return f"{stack}.{kind}"
