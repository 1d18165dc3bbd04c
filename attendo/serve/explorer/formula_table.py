"""Table of the operations of a forward pass: formulas, shapes, norms and time."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attendo.explore.calculation import find_norm
from attendo.explore.formulas.catalogue import bind_formula
from attendo.model.trace_layers import TracedTensor
from attendo.model.transformer import Embedding, Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.masks import Mask, layer_masks
from attendo.nn.positions import Rotation
from attendo.text_model.backends import eval_mode
from attendo.text_model.trace import Trace

REPEATS = 3  # the minimum is used, because other load only adds time


class OperationTable:
    """Builds the rows of the table."""

    def __init__(self, network: Transformer, trace: Trace) -> None:
        self._network, self._trace = network, trace
        self._sizes = {each.place: each for each in trace.sizes()}
        self._seconds = time_sub_layers(network, trace)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows in the order of computation."""
        lines: list[TracedTensor] = []
        for entry in self._trace.entries.values():
            lines.append(entry)
            site, _, end = entry.name.rpartition(".")
            if site in self._sizes and end == "output":
                before = _sub_layer_input(self._network, self._trace, site)
                seconds: float | None = self._seconds[site]
                yield self._make_row(site, lines, before, self._sizes[site].share, seconds)
            elif end in ("residual", "norm", "input", "output", "logits", "probabilities"):
                share = self._sizes[site].share if end == "residual" else None
                seconds = self._seconds["output"] if entry.name == "output.logits" else None
                yield self._make_row(entry.name, lines, self._operation_input(entry.name), share, seconds)
            else:
                continue
            lines = []

    def _make_row(
        self,
        name: str,
        lines: Sequence[TracedTensor],
        before: Tensor,
        share: float | None,
        seconds: float | None,
    ) -> dict[str, Any]:
        """Return a row. Norms are the mean Euclidean norms of the vectors, `gain` is the mean γ of a layer norm."""
        stack, after = name.partition(".")[0], lines[-1].value
        module = find_norm(self._network, name)
        return {
            "name": name,
            "part": {"source": "encoder", "target": "decoder"}.get(stack, stack),
            "shape_in": list(before.shape),
            "norm_in": float(before.float().norm(dim=-1).mean()),
            "shape_out": list(after.shape),
            "norm_out": float(after.float().norm(dim=-1).mean()),
            "share": share,
            "gain": None if module is None else float(module.weight.detach().float().mean()),
            "microseconds": None if seconds is None else 1e6 * seconds,
            "steps": [
                {
                    "name": each.name,
                    "formula": each.formula,
                    "letter": each.letter,
                    "shape": list(each.shape),
                    "bound": bind_formula(each),
                }
                for each in lines
            ],
        }

    def _operation_input(self, name: str) -> Tensor:
        """Return the input of the operation with this name."""
        trace, (site, _, end) = self._trace, name.rpartition(".")
        match end:
            case "residual":
                return trace[name] - trace[f"{site}.output"]
            case "norm" if self._network.config.norm == "post":
                return trace[f"{site}.residual"]
            case "norm":
                return trace[f"{site}.residual"] - trace[f"{site}.output"]
            case "output":
                layers = len(self._network.encoder if site == "encoder" else self._network.decoder)
                last = f"{site}.{layers - 1}.feed_forward"
                if f"{site}.target_rows" in trace:
                    return trace[f"{site}.target_rows"]
                return trace[f"{last}.residual" if self._network.config.norm == "pre" else f"{last}.norm"]
            case "input":
                return trace[f"{site}.embedding"]
            case "logits":
                return trace.get("output.scaled", trace["decoder.output"])
            case _:
                return trace["output.logits"]


def _sub_layer_input(network: Transformer, trace: Trace, site: str) -> Tensor:
    """Return the input of a sub-layer: the normalised vectors with pre-norm."""
    if network.config.norm == "pre":
        return trace[f"{site}.norm"]
    return trace[f"{site}.residual"] - trace[f"{site}.output"]


@torch.inference_mode()
def time_sub_layers(network: Transformer, trace: Trace) -> dict[str, float]:
    """Measure seconds per sub-layer, by name. `output` is the output projection to the logits."""
    seconds: dict[str, float] = {}

    def measure(name: str, work: Callable[[Tensor], object], vectors: Tensor) -> None:
        x = vectors[None].to(network.output.weight)
        seconds[name] = min(_measure_seconds(lambda: work(x), network.device) for _ in range(REPEATS))

    causal = Mask(causal=trace.masked and len(trace.read_pieces) > 1)
    stacks: list[tuple[str, nn.ModuleList, Embedding, Mask]] = [("decoder", network.decoder, network.target, causal)]
    if network.source is not None:
        stacks.insert(0, ("encoder", network.encoder, network.source, Mask()))
    with eval_mode(network):
        for stack, blocks, embedding, mask in stacks:
            first = _sub_layer_input(network, trace, f"{stack}.0.self")
            x, positions = first[None].to(network.output.weight), embedding.positions
            rotation, masks = (
                positions.rotation(x, 0),
                layer_masks(mask, positions.biases(x, 0, x.size(1)), len(blocks)),
            )
            for n, block in enumerate(blocks):
                assert isinstance(block, EncoderBlock | DecoderBlock)
                work: dict[str, Callable[[Tensor], object]] = {"feed_forward": block.feed_forward}
                if isinstance(block, DecoderBlock) and block.recurrence is not None:
                    work["self"] = partial(block.recurrence, past=None, mask=masks[n])
                else:
                    work["self"] = partial(_attend_to_self, block.self_attention, masks[n], rotation)
                if isinstance(block, DecoderBlock) and block.cross_attention is not None:
                    memory = trace["encoder.output"][None].to(network.output.weight)
                    work["cross"] = partial(_attend_to_memory, block.cross_attention, memory)
                for kind, call in work.items():
                    site = f"{stack}.{n}.{kind}"
                    measure(site, call, _sub_layer_input(network, trace, site))
        measure("output", network.output, trace.get("output.scaled", trace["decoder.output"]))
    return seconds


def _attend_to_self(attention: MultiHeadAttention, mask: Mask, rotation: Rotation | None, x: Tensor) -> Tensor:
    queries, kv = attention.queries_keys_values(x, rotation)
    return attention(queries, kv, mask)


def _attend_to_memory(attention: MultiHeadAttention, memory: Tensor, x: Tensor) -> Tensor:
    """Attend to the encoder's output. Its keys and values are included, which are computed once per sentence."""
    return attention(attention.queries(x), attention.keys_values(memory), Mask())


def _measure_seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
