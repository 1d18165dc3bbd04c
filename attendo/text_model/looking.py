"""Answers seen from inside: which source tokens the network looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.decode.watching import between_steps
from attendo.errors import ModelError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text_model.grouping import in_groups
from attendo.text_model.results import Alignment, Result

ALIGNMENT_HEAD = "alignment_head"  # in scores.json
_POSITIONS = 4096  # of a batch: for each there is a weight for every token of the source and every head


@dataclass(frozen=True)
class AlignmentHead:
    """The head of cross-attention that best finds the word being translated; both count from 0."""

    layer: int
    head: int

    @staticmethod
    def stored(scores: Mapping[str, Any], config: ModelConfig) -> "AlignmentHead | None":
        """The one that a model folder names in its scores.json; None where it names none."""
        if (found := scores.get(ALIGNMENT_HEAD)) is None:
            return None
        sizes = {"layer": config.num_decoder_layers, "head": config.num_heads}
        places = {name: found.get(name) if isinstance(found, dict) else None for name in sizes}
        if not all(type(place) is int and 0 <= place < sizes[name] for name, place in places.items()):
            raise ModelError(
                "alignment_head_out_of_range",
                name=ALIGNMENT_HEAD,
                value=found,
                layers=sizes["layer"],
                heads=sizes["head"],
            )
        return AlignmentHead(found["layer"], found["head"])

    @property
    def site(self) -> str:
        return f"decoder.{self.layer}.cross"


@torch.inference_mode()
def aligned(
    results: Sequence[Result],
    sources: Sequence[Sequence[int]],
    networks: Sequence[Transformer],
    batch_tokens: int,
    scores: Mapping[str, Any] | None = None,
) -> list[Result]:
    """The same results, each hypothesis with its alignment: one more pass over answers that are known.

    It is that of the alignment head that `scores` name. Without one, and in an ensemble, whose members have learned
    different heads, it is the mean of the heads of the last layer.
    """
    head = AlignmentHead.stored(scores or {}, networks[0].config) if len(networks) == 1 else None
    pairs = [
        Example(source, each.ids) for result, source in zip(results, sources, strict=True) for each in result.hypotheses
    ]
    found: dict[int, Alignment] = {}

    def look(group: Sequence[int]) -> None:
        between_steps()
        batch = collate([pairs[number] for number in group]).to(networks[0].output.weight.device)
        mean = torch.stack([_looks(each, batch, head) for each in networks]).mean(dim=0).cpu()
        for row, number in enumerate(group):
            pair = pairs[number]
            found[number] = Alignment(mean[row, : len(pair.target), : len(pair.source) + 1].clone())

    in_groups([pair.length for pair in pairs], min(batch_tokens, _POSITIONS), look)
    each_in_turn = iter(range(len(pairs)))
    return [
        replace(
            result,
            hypotheses=tuple(replace(each, alignment=found[next(each_in_turn)]) for each in result.hypotheses),
        )
        for result in results
    ]


def _looks(network: Transformer, batch: Batch, head: AlignmentHead | None) -> Float[Tensor, "B T S"]:
    """Its attention to the source: of this head, or the mean of those of the last layer."""
    seen: list[Tensor] = []
    site = head.site if head else f"decoder.{network.config.num_decoder_layers - 1}.cross"

    def tap(here: str, weights: Tensor) -> None:
        if here == site:
            seen.append(weights[:, head.head].float() if head else weights.float().mean(dim=1))

    network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
    return seen[0]
