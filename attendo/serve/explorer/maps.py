"""All attention maps of one run as one block of numbers, and what they come to together."""

import base64
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.model.config import ModelConfig
from attendo.model.trace import MOST_NUMBERS
from attendo.serve.errors import Refusal
from attendo.serve.explorer.subject import Subject

KINDS = {"encoder_self": ("encoder", "self"), "decoder_self": ("decoder", "self"), "cross": ("decoder", "cross")}


class Maps:
    """The weights of every attention by its place, [H, T, S], and the logits of the same run."""

    def __init__(self, subject: Subject, masked: bool) -> None:
        self.config = subject.model.network.config
        self.weights: dict[str, Float[Tensor, "H T S"]] = {}
        # A trace keeps far more than the maps: where that is too much, layer after layer is traced alone.
        most = max(self.config.num_encoder_layers, self.config.num_decoder_layers)
        layers: Sequence[int | None] = [None] if fits(self.config, subject) else range(most)
        for layer in layers:
            trace = subject.trace(masked, layer)
            self.logits: Float[Tensor, "T V"] = trace.logits
            found = {name.removesuffix(".weights"): trace[name] for name in trace if name.endswith(".weights")}
            self.weights.update(found)

    def layers_of(self, kind: str, chosen: Sequence[int] | None) -> list[int]:
        count = self.config.num_encoder_layers if KINDS[kind][0] == "encoder" else self.config.num_decoder_layers
        return [layer for layer in range(count) if chosen is None or layer in chosen]

    def stacked(self, kind: str, chosen: Sequence[int] | None = None) -> Float[Tensor, "L H T S"]:
        stack, sort = KINDS[kind]
        found = [self.weights[f"{stack}.{layer}.{sort}"] for layer in self.layers_of(kind, chosen)]
        return torch.stack(found) if found else torch.zeros(0, self.config.num_heads, 0, 0)


def check_layers(config: ModelConfig, chosen: Sequence[int] | None) -> None:
    for layer in chosen or ():
        if layer >= max(config.num_encoder_layers, config.num_decoder_layers):
            stack = "encoder" if config.num_encoder_layers > config.num_decoder_layers else "decoder"
            count = max(config.num_encoder_layers, config.num_decoder_layers)
            raise Refusal("unknown_layer", layer=layer, stack=stack, count=count)


def check_block(config: ModelConfig, subject: Subject, chosen: Sequence[int] | None, most: int) -> None:
    """Before anything is computed."""
    source, target = len(subject.source_ids), len(subject.read_ids)
    encoder, decoder = (
        len([layer for layer in range(count) if chosen is None or layer in chosen])
        for count in (config.num_encoder_layers, config.num_decoder_layers)
    )
    size = 2 * config.num_heads * (encoder * source * source + decoder * target * (target + source))
    if size > most:
        extra = {"choices": ["fewer layers"], "choices_zh": ["减少层数"]}
        raise Refusal("block_too_large", extra, size=size / 2**20, most=most / 2**20)


def block(maps: Maps, chosen: Sequence[int] | None) -> dict[str, Any]:
    """Where each kind begins, counted in numbers, and all of them behind one another as float16."""
    told: dict[str, Any] = {"dtype": "float16", "layers": sorted(set(chosen)) if chosen is not None else None}
    parts, offset = [], 0
    for kind in KINDS:
        stacked = maps.stacked(kind, chosen)
        layers = maps.layers_of(kind, chosen)
        told[kind] = {"shape": list(stacked.shape), "offset": offset, "byte_offset": 2 * offset, "layers": layers}
        parts.append(stacked.flatten())
        offset += stacked.numel()
    if told["layers"] is None:
        told["layers"] = list(range(max(maps.config.num_encoder_layers, maps.config.num_decoder_layers)))
    numbers = torch.cat(parts).to(torch.float16).cpu().numpy().astype("<f2")
    return {"maps": told, "block": base64.b64encode(numbers.tobytes()).decode("ascii")}


def rollout(maps: Maps) -> dict[str, Any]:
    """How much of each prediction comes from each source token, through all layers.

    Attention rollout (Abnar & Zuidema 2020): of what leaves a sub-layer one half is what entered it, by the path around
    it, and one half what its heads brought, on average. The rows are divided by their sums, for the rest of each (2⁻ᴸ
    with L layers) comes from the target itself.
    """
    source = maps.stacked("encoder_self").mean(dim=1)  # [L, S, S]
    size, length = maps.weights["decoder.0.cross"].shape[2], maps.weights["decoder.0.cross"].shape[1]
    memory = torch.eye(size)
    for looked in source:
        memory = 0.5 * memory + 0.5 * looked @ memory
    brought = torch.zeros(length, size)
    of_itself, of_memory = maps.stacked("decoder_self").mean(dim=1), maps.stacked("cross").mean(dim=1)
    for own, looked in zip(of_itself, of_memory, strict=True):
        brought = 0.5 * brought + 0.5 * own @ brought
        brought = 0.5 * brought + 0.5 * looked @ memory
    values = brought / brought.sum(dim=1, keepdim=True)
    return {"shape": [length, size], "values": values.flatten().tolist()}


def fits(config: ModelConfig, subject: Subject) -> bool:
    """Whether a trace of all layers can be kept."""
    source, target = len(subject.source_ids), len(subject.read_ids)
    cells = config.num_encoder_layers * source * source + config.num_decoder_layers * target * (target + source)
    return 4 * config.num_heads * cells <= MOST_NUMBERS
