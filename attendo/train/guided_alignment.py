"""Guided alignment: one head of cross-attention learns the word alignments of the data (Chen et al. 2016).

    loss = cross-entropy of the tokens + weight · -∑ₜ ∑ₛ gₜₛ log aₜₛ

aₜₛ is the attention of the head before dropout. gₜₛ is uniform over the source tokens that target token t is aligned
with. A token without alignment shall attend to EOS, which every user of alignments reads as no link. As in Garg et al.
(2019), one head of one layer is trained. All other layers keep their fused kernels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attendo.data.batch import Batch, Example, RaggedArray, collate
from attendo.data.bucketing import make_batches
from attendo.data.pharaoh import Link
from attendo.data.token_links import TokenLinker, flatten_links
from attendo.metrics.alignment_error import LinkCounts
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.attention import SiteTap
from attendo.text_model import eval_mode
from attendo.text_model.alignment import ALIGNMENT_HEAD, AlignmentHead
from attendo.text_model.inputs import ModelSymbols
from attendo.train.config import TrainConfig

_SMALLEST = 1e-30  # log of a smaller weight would have an infinite gradient


class GuidedAlignment:
    """The head that learns alignments. `total` is its loss, summed over the tokens of an update."""

    def __init__(self, network: Transformer, config: TrainConfig) -> None:
        self.head = guided_head(network.config, config)
        self.weight = config.guided_alignment_weight
        self.total = torch.zeros((), device=network.device)

    def tap(self, seen: list[Tensor]) -> SiteTap:
        """Return a tap that appends the weights of the head to `seen`."""

        def keep(_: str, weights: Tensor) -> None:
            seen.append(weights[:, self.head.head])

        return SiteTap(self.head.site, keep)

    def loss(self, weights: Float[Tensor, "R T S"], links: Bool[Tensor, "B T S"]) -> Float[Tensor, ""]:
        """Return the weighted loss of a pass. The rows of two passes (R-Drop) count half."""
        passes = weights.size(0) // links.size(0)
        loss = alignment_loss(weights, links.repeat(passes, 1, 1)) / passes
        self.total += loss.detach()
        return self.weight * loss


def alignment_loss(weights: Float[Tensor, "R T S"], links: Bool[Tensor, "R T S"]) -> Float[Tensor, ""]:
    """Return -∑ g log a, summed over the target tokens that have links."""
    shares = links / links.sum(-1, keepdim=True).clamp(min=1)
    return -(shares * weights.clamp(min=_SMALLEST).log()).sum()


def guided_head(network: ModelConfig, config: TrainConfig) -> AlignmentHead:
    """Return the head that is trained: the first of the chosen layer.

    By default this is the last layer but one (Garg et al. 2019). In a network of two layers it is the last, because
    the first has read too little of the target.
    """
    layers, layer = network.num_decoder_layers, config.guided_alignment_layer
    return AlignmentHead(layers - (2 if layers > 2 else 1) if layer is None else layer, 0)


def guided_head_entry(network: ModelConfig, config: TrainConfig) -> dict[str, Any]:
    """Return the entry of the head in scores.json of the model folder."""
    head = guided_head(network, config)
    return {ALIGNMENT_HEAD: {"layer": head.layer, "head": head.head, "guided": True}}


def keep_guided_head(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a guided head, which holds for all weights of a run, and no other scores."""
    entry = scores.get(ALIGNMENT_HEAD)
    return {ALIGNMENT_HEAD: entry} if isinstance(entry, dict) and entry.get("guided") else {}


@dataclass(frozen=True)
class _AlignedBatch:
    """A batch with the gold links of its pairs, and the word of each token."""

    batch: Batch
    gold: Sequence[frozenset[Link]]
    source_words: Sequence[Sequence[int]]
    target_words: Sequence[Sequence[int]]


class AlignmentValidation:
    """Measures the loss and the alignment error rate of the head on pairs with gold links."""

    def __init__(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        gold: Sequence[frozenset[Link]],
        linker: TokenLinker,
        symbols: ModelSymbols,
        batch_tokens: int,
    ) -> None:
        """`pairs` are ids without the symbols of the model, and `gold` the links of their words."""
        self._symbols = symbols
        examples = [Example(symbols.wrap_source(one), (*symbols.begin, *other)) for one, other in pairs]
        self._batches: list[_AlignedBatch] = []
        lengths = (np.array([len(each.source) + 1 for each in examples]), np.array([each.length for each in examples]))
        for group in (rows.tolist() for rows in make_batches(*lengths, batch_tokens)):
            sides = [RaggedArray.from_lists([pairs[row][side] for row in group]) for side in (0, 1)]
            links = linker.link(sides[0], sides[1], flatten_links(gold[row] for row in group))
            batch = collate([examples[row] for row in group])
            words = (
                RaggedArray(tables.word_of_each_token(side), side.offsets)  # type: ignore[arg-type]
                for tables, side in zip((linker.source, linker.target), sides, strict=True)
            )
            sources, targets = ([each[row] for row in range(len(group))] for each in words)
            linked = batch.with_links(links, len(symbols.before), len(symbols.begin))
            self._batches.append(_AlignedBatch(linked, [gold[row] for row in group], sources, targets))

    @torch.inference_mode()
    def measure(self, network: Transformer, guided: GuidedAlignment) -> dict[str, float]:
        """Return the loss per aligned token as `alignment_loss`, and the error rate as `aer`, from 0 to 1."""
        loss, tokens, counts = 0.0, 0, LinkCounts()
        with eval_mode(network):
            for each in self._batches:
                batch, seen = each.batch.to(network.device), list[Tensor]()
                network(batch.source_ids, batch.target_ids, batch.source_mask, tap=guided.tap(seen))
                assert batch.links is not None
                loss += float(alignment_loss(seen[0], batch.links))
                tokens += int(batch.links.any(-1).sum())
                best = seen[0].argmax(-1).tolist()
                counts = sum((self._count(each, row, positions) for row, positions in enumerate(best)), counts)
        rate = counts.error_rate
        return {"alignment_loss": loss / tokens, "aer": rate} if tokens and rate is not None else {}

    def _count(self, batch: _AlignedBatch, row: int, best: Sequence[int]) -> LinkCounts:
        """Count the links of a pair. `best` is the source token with the largest weight, for each target token."""
        sources, targets = batch.source_words[row], batch.target_words[row]
        before, begin = len(self._symbols.before), len(self._symbols.begin)
        chosen = [(position - before, word) for position, word in zip(best[begin:], targets, strict=False)]
        found = {(sources[source], target) for source, target in chosen if 0 <= source < len(sources)}
        return LinkCounts.from_links(found, batch.gold[row])
