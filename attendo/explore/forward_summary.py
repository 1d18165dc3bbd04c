"""Summary of one forward pass for a drawing of the whole network: norms, small attention maps, predictions."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.explore.formulas.catalogue import describe_formulas
from attendo.explore.number_block import NumberBlock
from attendo.text import EOS
from attendo.text_model.trace import Trace

MAX_MAP_SIZE = 32  # rows and columns of a map; larger maps have the maximum of each block
TOP_TOKENS = 6


def summarize_forward(trace: Trace, top: int = TOP_TOKENS) -> dict[str, Any]:
    """Return what a drawing of the network shows. The arrays are in one block of float16 numbers.

    Each sub-layer has the norms of its input, its output, their sum and the normalised vectors, for every token.
    """
    block = NumberBlock()
    return {
        "text": trace.text,
        "norm": trace.config.norm,
        "d_model": trace.config.d_model,
        "heads": trace.config.num_heads,
        "target_text": _find_target_text(trace),
        "source": {"pieces": list(trace.source_pieces)},
        "target": {"read": list(trace.read_pieces), "predicted": list(trace.target_pieces)},
        "first": trace.first_row,
        "inputs": {
            side: block.add(trace[f"{side}.input"].norm(dim=-1))
            for side in ("source", "target")
            if f"{side}.input" in trace
        },
        "stacks": {stack: list(_describe_layers(trace, stack, block)) for stack in ("encoder", "decoder")},
        "layers": {"encoder": list(trace.encoder_layers), "decoder": list(trace.decoder_layers)},
        "kind": trace.config.kind,
        "masked": trace.masked,
        "outputs": {
            stack: block.add(_fill_given(trace[f"{stack}.output"].norm(dim=-1), trace.first_row))
            for stack in ("encoder", "decoder")
            if f"{stack}.output" in trace
        },
        "steps": list(_describe_steps(trace, top)),
        "loss": trace.loss,
        "vocabulary": trace.logits.size(-1),
        "operations": _list_operations(trace),
        "formulas": describe_formulas(trace),
        "block": block.encode(),
    }


def pool_maps(weights: Float[Tensor, "H T S"]) -> Float[Tensor, "H R C"]:
    """Shrink the maps to at most `MAX_MAP_SIZE` rows and columns. The maximum keeps a thin line visible.

    Row n of a map is in row ⌊n · size / rows⌋ of the small one. Adaptive pooling needs 2 to 3 times as long.
    """
    for axis in (1, 2):
        length = weights.size(axis)
        if length > MAX_MAP_SIZE:
            starts = torch.tensor([-(-n * length // MAX_MAP_SIZE) for n in range(MAX_MAP_SIZE + 1)])
            largest = weights.index_select(axis, starts[:-1])
            for further in range(1, int(starts.diff().max())):
                places = torch.minimum(starts[:-1] + further, starts[1:] - 1)
                largest = torch.maximum(largest, weights.index_select(axis, places))
            weights = largest
    return weights


def _describe_steps(trace: Trace, top: int) -> Iterator[dict[str, Any]]:
    for step in trace.steps(top):
        yield {
            "piece": step.piece,
            "id": step.id,
            "probability": step.probability,
            "log_probability": step.log_probability,
            "rank": step.rank,
            "entropy": step.entropy,
            "top": [{"piece": each.piece, "id": each.id, "probability": each.probability} for each in step.top],
        }


def _describe_layers(trace: Trace, stack: str, block: NumberBlock) -> Iterator[dict[str, Any]]:
    for layer in trace.encoder_layers if stack == "encoder" else trace.decoder_layers:
        yield {
            kind: _describe_sublayer(trace, f"{stack}.{layer}.{kind}", block)
            for kind in ("self", "cross", "feed_forward")
            if f"{stack}.{layer}.{kind}.output" in trace
        }


def _describe_sublayer(trace: Trace, site: str, block: NumberBlock) -> dict[str, Any]:
    weights = trace.get(f"{site}.weights")
    maps = None
    if weights is not None:
        mean = pool_maps(weights.mean(dim=0, keepdim=True))[0]
        maps = {"heads": block.add(pool_maps(weights)), "mean": block.add(mean), "shape": list(weights.shape)}
    recurrent = f"{site}.cells" in trace
    return {
        "kind": "feed_forward" if weights is None else "recurrence" if recurrent else "attention",
        "norms": {name: block.add(each.norm(dim=-1)) for name, each in _list_vectors(trace, site)},
        "maps": maps,
    }


def _list_vectors(trace: Trace, site: str) -> Iterator[tuple[str, Float[Tensor, "T D"]]]:
    """Yield x, Sublayer(x), their sum and the normalised vectors."""
    yield "input", trace[f"{site}.residual"] - trace[f"{site}.output"]
    for end in ("output", "residual", "norm"):
        yield end, trace[f"{site}.{end}"]


def _fill_given(norms: Float[Tensor, " T"], first: int) -> Float[Tensor, " R"]:
    """Return the norms with 0 for the rows before the first prediction, which are not computed."""
    return torch.cat((norms.new_zeros(first), norms))


def _find_target_text(trace: Trace) -> str | None:
    """Return the text that gives the same target again without a search, or None if there is none."""
    if trace.config.kind != "autoregressive" or trace.config.continues_text:
        return None
    ids = list(trace.target_ids)
    return trace.text if [*trace.tokenizer.encode(trace.text), EOS] == ids else None


def _list_operations(trace: Trace) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "formula": each.formula, "letter": each.letter, "shape": list(each.shape)}
        for each in trace.entries.values()
    ]
