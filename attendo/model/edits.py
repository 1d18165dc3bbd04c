"""Edits of a network for one question: what if a layer were missing, a mask had a hole, a weight were another one?"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.head_scaling import sites


@dataclass(frozen=True)
class WeightEdit:
    """Sets one attention weight. The other weights of its row are scaled so that the row still sums to 1."""

    module: str  # an attention site: decoder.0.cross
    row: int
    column: int
    value: float
    head: int | None = None  # None: all heads


@dataclass(frozen=True)
class MaskEdit:
    """Opens or closes one cell of a mask."""

    module: str  # an attention site, or the mask of a whole stack: encoder.self, decoder.self, decoder.cross
    row: int
    column: int
    visible: bool
    head: int | None = None


@dataclass(frozen=True)
class Padding:
    """Padding after the source, as in a batch with a longer sentence."""

    tokens: int
    masked: bool = True


@dataclass(frozen=True)
class NetworkEdits:
    """What is different. A token that does not exist makes an edit of its row or column have no effect."""

    disabled: tuple[
        str, ...
    ] = ()  # layers (encoder.0) or sub-layers (decoder.1.cross); their input passes on unchanged
    weights: tuple[WeightEdit, ...] = ()
    mask: tuple[MaskEdit, ...] = ()
    padding: Padding = Padding(0)

    def __bool__(self) -> bool:
        return bool(self.disabled or self.weights or self.mask or self.padding.tokens)

    def disables(self, site: str) -> bool:
        """Return whether a sub-layer, or its layer, is switched off."""
        return site in self.disabled or site.rpartition(".")[0] in self.disabled

    def close_padding(self, visible: Bool[Tensor, "T S"]) -> Bool[Tensor, "T S"]:
        """Hide the padding of the source, whose tokens are the columns."""
        if not (self.padding.tokens and self.padding.masked):
            return visible
        hidden = visible.clone()
        hidden[:, -self.padding.tokens :] = False
        return hidden

    def edit_mask(self, site: str, visible: Bool[Tensor, "T S"], heads: int) -> Bool[Tensor, "*H T S"]:
        """Return the mask of an attention site. It has one matrix per head only if an edit is about one head."""
        stack, _, kind = site.split(".")
        found = [edit for edit in self.mask if edit.module in (site, f"{stack}.{kind}")]
        found = [edit for edit in found if _is_inside(edit, visible)]
        if not found:
            return visible
        edited = visible.expand(heads, -1, -1).clone()
        for edit in found:
            edited[slice(None) if edit.head is None else edit.head, edit.row, edit.column] = edit.visible
        return edited if any(edit.head is not None for edit in found) else edited[0]

    def edit_weights(self, site: str, weights: Float[Tensor, "H T S"]) -> Float[Tensor, "H T S"]:
        """Return the weights of an attention site."""
        found = [edit for edit in self.weights if edit.module == site and _is_inside(edit, weights)]
        if not found:
            return weights
        edited, is_set = weights.clone(), torch.zeros_like(weights, dtype=torch.bool)
        for edit in found:
            heads = slice(None) if edit.head is None else edit.head
            edited[heads, edit.row, edit.column] = edit.value
            is_set[heads, edit.row, edit.column] = True
        given, others = edited.masked_fill(~is_set, 0.0), edited.masked_fill(is_set, 0.0)
        # The given weights come first. A row without other weights, or with too large ones, is normalised as a whole.
        rest = (1 - given.sum(-1, keepdim=True)).clamp(min=0.0)
        total = others.sum(-1, keepdim=True)
        rows = given + torch.where(total > 0, others * rest / total.clamp(min=1e-30), 0.0)
        rows = rows / rows.sum(-1, keepdim=True).clamp(min=1e-30)
        return torch.where(is_set.any(-1, keepdim=True), rows, weights)

    def check(self, config: ModelConfig) -> None:
        """Raise UsageError if the network does not have these modules and heads."""
        known, layers = sites(config), list_layers(config)
        for name in self.disabled:
            _check_module(name, [*layers, *list_sub_layers(config)])
        for weight in self.weights:
            _check_module(weight.module, known)
        for cell in self.mask:
            _check_module(cell.module, [*list_masks(config), *known])
        edits: list[WeightEdit | MaskEdit] = [*self.weights, *self.mask]
        for edit in edits:
            if edit.head is not None and not 0 <= edit.head < config.num_heads:
                raise UsageError(
                    "attention_head_out_of_range", site=edit.module, head=edit.head, count=config.num_heads
                )


def list_layers(config: ModelConfig) -> list[str]:
    """Return the names of all layers: encoder.0, decoder.0 ..."""
    counts = (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers))
    return [f"{stack}.{n}" for stack, count in counts for n in range(count)]


def list_sub_layers(config: ModelConfig) -> list[str]:
    """Return the names of all sub-layers, in order of computation. A recurrence is called self."""
    kinds = {"encoder": ["self", "feed_forward"], "decoder": ["self", "cross", "feed_forward"]}
    if not config.has_cross:
        kinds["decoder"].remove("cross")
    return [f"{layer}.{kind}" for layer in list_layers(config) for kind in kinds[layer.partition(".")[0]]]


def list_masks(config: ModelConfig) -> list[str]:
    """Return the names of the masks that all layers of a stack share."""
    return list(dict.fromkeys(f"{site.split('.')[0]}.{site.split('.')[2]}" for site in sites(config)))


def _check_module(name: str, known: list[str]) -> None:
    if name not in known:
        raise UsageError("unknown_module", module=name, known=", ".join(known))


def _is_inside(edit: WeightEdit | MaskEdit, matrix: Tensor) -> bool:
    return 0 <= edit.row < matrix.size(-2) and 0 <= edit.column < matrix.size(-1)
