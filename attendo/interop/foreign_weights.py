"""The weights of BART's family by their names there, and all that is wrong with them."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from attendo.errors import ModelError, list_names
from attendo.interop.huggingface import HuggingFaceFolder

SHARED, ENCODER, DECODER, OUTPUT = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)

_PARTS = {
    "self_attention.project": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_residual.normalise": ("self_attn_layer_norm",),
    "cross_attention.project": ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_residual.normalise": ("encoder_attn_layer_norm",),
    "feed_forward.expand": ("fc1",),
    "feed_forward.contract": ("fc2",),
    "feed_forward_residual.normalise": ("final_layer_norm",),
}
_OUTSIDE_BLOCKS = {
    "source.positions.table": "encoder.embed_positions.weight",
    "target.positions.table": "decoder.embed_positions.weight",
    "source.norm": "encoder.layernorm_embedding",
    "target.norm": "decoder.layernorm_embedding",
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
}


class FoundWeights:
    """Their weights, and what was wrong with those that were asked for."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights
        self._taken: set[str] = set()
        self._faults: list[str] = []

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Zeros where it is not as it should be: all that is wrong is told together."""
        self._taken.add(name)
        if name not in self._weights:
            self._faults.append(f"{name} is missing")
        elif tuple(self._weights[name].shape) != shape:
            self._faults.append(f"{name} is {list(self._weights[name].shape)}, not {list(shape)}")
        elif not bool(self._weights[name].isfinite().all()):
            self._faults.append(f"{name} holds what is no number")
        else:
            return self._weights[name]
        return torch.zeros(()).expand(shape)

    def one_of(self, names: set[str], own: str, shape: tuple[int, ...], flags: str) -> Tensor:
        """The table that all of these names stand for; `SHARED` stands in for an embedding that is not there."""
        stand_in = SHARED if own != OUTPUT and SHARED in self._weights else own
        there = sorted(name for name in names if name in self._weights) or [stand_in]
        first = self.take(there[0], shape)
        for other in there[1:]:
            if not torch.equal(first, self.take(other, shape)):
                self._faults.append(f"{there[0]} and {other} differ, against {flags}")
        self._taken.add(SHARED)
        return first

    def part(self, name: str, shape: torch.Size) -> Tensor:
        """What stands for a parameter of ours; queries, keys and values are one here."""
        if (outside := next((each for each in _OUTSIDE_BLOCKS if name.startswith(each)), None)) is not None:
            return self.take(_OUTSIDE_BLOCKS[outside] + name.removeprefix(outside), tuple(shape))
        block = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.(weight|bias)", name)
        assert block is not None, name
        stack, number, part, what = block.groups()
        parts = _PARTS[part]
        each_shape = (shape[0] // len(parts), *shape[1:])
        return torch.cat([self.take(f"{stack}.layers.{number}.{each}.{what}", each_shape) for each in parts])

    def leave(self, names: tuple[str, ...]) -> None:
        """They may be there and are not needed."""
        self._taken.update(names)

    def check(self, folder: HuggingFaceFolder, complete: bool = False) -> None:
        """Nothing may be wrong so far; when all is read that was needed, nothing may be left over."""
        surplus = [f"{name} has no place" for name in self._weights if name not in self._taken] if complete else []
        if faults := [*dict.fromkeys(self._faults), *surplus]:
            told = f"{list_names(faults, 5, '; ')} ({len(faults)} in all)"
            raise ModelError("weights_config_mismatch", path=folder.path, faults=told)
