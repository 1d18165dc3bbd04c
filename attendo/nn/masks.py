"""Attention masks: Boolean tensors, True = the query may attend to the key. All masks are built here.

The network needs three: source padding in the encoder, source padding in cross-attention, and the causal mask with
target padding in the decoder. A prefix LM joins the last two. Relative positions add a number to every score, which a
mask carries too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """The keys that each query may attend to: all, unless `visible` or `causal` is set. At most one of them is set.

    A causal mask over a whole target stays a flag, because the flash kernel does not support a mask tensor.
    """

    visible: Bool[Tensor, "#B 1 #T S"] | None = None
    causal: bool = False
    bias: Float[Tensor, "#B H #T S"] | None = None  # added to the scores; very low at hidden keys, so that kernels
    # that take numbers need no other mask

    def matrix(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#B 1 #T S"] | None:
        """Return the mask as a tensor that broadcasts over [B, H, T, S], or None if all keys are visible."""
        return _causal_matrix(0, queries, keys, device) if self.causal else self.visible

    def with_bias(self, bias: Float[Tensor, "#B H T S"]) -> "Mask":
        """Return the mask with this bias."""
        visible = self.matrix(bias.size(-2), bias.size(-1), bias.device)
        if visible is not None:
            # Half the lowest number, not -inf: a sum with a score neither overflows nor is NaN.
            bias = bias.masked_fill(~visible, torch.finfo(bias.dtype).min / 2)
        return replace(self, bias=bias)


@dataclass(frozen=True)
class SlidingWindow:
    """A limit on the distance of keys, in all layers but the last of every `pattern` layers (Gemma 3).

    A query sees `size` keys: the last ones up to its own, or with `two_sided` as many before it as behind it.
    """

    size: int
    pattern: int
    two_sided: bool

    def slides(self, layer: int) -> bool:
        """Return whether the window limits this layer."""
        return (layer + 1) % self.pattern != 0

    def limit(self, mask: Mask, distance: Int[Tensor, "#B #T S"]) -> Mask:
        """Return a mask without the keys outside the window. `distance` is the query's position minus the key's."""
        behind, before = (self.size // 2, (self.size + 1) // 2) if self.two_sided else (self.size, self.size)
        if distance.size(-1) <= behind:
            return mask  # no key is outside
        near = (distance < before) & (distance >= -behind)
        visible = mask.matrix(distance.size(-2), distance.size(-1), distance.device)
        return Mask(near[:, None] if visible is None else visible & near[:, None])


def layer_masks(mask: Mask, biases: Float[Tensor, "L #B H T S"] | None, layers: int) -> Sequence[Mask]:
    """Return the mask of every layer. One bias serves all of them."""
    if biases is None:
        return (mask,) * layers
    masks = [mask.with_bias(bias) for bias in biases]
    return masks * layers if len(masks) == 1 else masks


def padding_mask(is_token: Bool[Tensor, "B S"] | None) -> Mask:
    """Return a mask that hides padding."""
    return Mask(None if is_token is None else is_token[:, None, None, :])


def causal_mask(past: int, queries: int, is_token: Bool[Tensor, "B S"] | None, device: torch.device) -> Mask:
    """Return the mask for queries at positions `past` to `past + queries - 1`: tokens up to the query's own position.

    `is_token` covers past and new positions. Targets padded on the right do not need it, because their padding comes
    after every real token.
    """
    if is_token is None and past == 0 and queries > 1:
        return Mask(causal=True)
    if queries == 1:  # a single new token attends to all earlier ones, so generation needs no causal mask
        return padding_mask(is_token)
    visible = _causal_matrix(past, queries, past + queries, device)
    return Mask(visible if is_token is None else visible & is_token[:, None, None, :])


def join_masks(masks: tuple[Mask, Mask], queries: int, keys: tuple[int, int], device: torch.device) -> Mask:
    """Concatenate two masks along their keys. `keys` are the numbers of keys of both."""
    found = [mask.matrix(queries, count, device) for mask, count in zip(masks, keys, strict=True)]
    bias = _join_biases(masks, queries, keys)
    if found[0] is None and found[1] is None:
        return Mask(bias=bias)
    rows = max(1 if each is None else each.size(0) for each in found)
    parts = [
        torch.ones(rows, 1, queries, count, dtype=torch.bool, device=device)
        if each is None
        else each.expand(rows, 1, queries, count)
        for each, count in zip(found, keys, strict=True)
    ]
    joined = Mask(torch.cat(parts, dim=-1))
    return joined if bias is None else joined.with_bias(bias)


def _join_biases(masks: tuple[Mask, Mask], queries: int, keys: tuple[int, int]) -> Float[Tensor, "#B H T S"] | None:
    """Concatenate the biases of two masks. Keys without a bias get 0."""
    given = [mask.bias for mask in masks if mask.bias is not None]
    if not given:
        return None
    rows, heads = max(each.size(0) for each in given), given[0].size(1)
    parts = [
        given[0].new_zeros(rows, heads, queries, count)
        if mask.bias is None
        else mask.bias.expand(rows, heads, queries, count)
        for mask, count in zip(masks, keys, strict=True)
    ]
    return torch.cat(parts, dim=-1)


def _causal_matrix(past: int, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "1 1 T S"]:
    position = torch.arange(past, past + queries, device=device)
    return (torch.arange(keys, device=device)[None, :] <= position[:, None])[None, None]
