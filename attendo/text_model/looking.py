"""Answers seen from inside: which source tokens the network looked at."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.model.transformer import Transformer
from attendo.text_model.grouping import of_like_length
from attendo.text_model.results import Alignment, Result


@torch.inference_mode()
def aligned(
    results: Sequence[Result], sources: Sequence[Sequence[int]], networks: Sequence[Transformer], batch_tokens: int
) -> list[Result]:
    """The same results, each hypothesis with its alignment: one more pass over answers that are known."""
    pairs = [
        Example(source, each.ids) for result, source in zip(results, sources, strict=True) for each in result.hypotheses
    ]
    found: dict[int, Alignment] = {}
    for group in of_like_length([pair.length for pair in pairs], batch_tokens):
        batch = collate([pairs[number] for number in group]).to(networks[0].output.weight.device)
        mean = torch.stack([_last_layer(each, batch) for each in networks]).mean(dim=0).cpu()
        for row, number in enumerate(group):
            pair = pairs[number]
            found[number] = Alignment(mean[row, : len(pair.target), : len(pair.source) + 1].clone())
    each_in_turn = iter(range(len(pairs)))
    return [
        replace(
            result,
            hypotheses=tuple(replace(each, alignment=found[next(each_in_turn)]) for each in result.hypotheses),
        )
        for result in results
    ]


def stacked(seen: dict[str, Tensor], stack: str, kind: str) -> Float[Tensor, "L H T S"]:
    """What a tap saw in the layers of one stack."""
    layers = [name for name in seen if name.startswith(f"{stack}.") and name.endswith(f".{kind}")]
    return torch.stack([seen[name][0] for name in layers]).float().cpu()


def _last_layer(network: Transformer, batch: Batch) -> Float[Tensor, "B T S"]:
    """Its attention to the source, as the mean of the heads."""
    seen: list[Tensor] = []
    site = f"decoder.{network.config.num_decoder_layers - 1}.cross"

    def tap(here: str, weights: Tensor) -> None:
        if here == site:
            seen.append(weights.float().mean(dim=1))

    network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
    return seen[0]
