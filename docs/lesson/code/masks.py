"""Masks: what may not be looked at. In this lesson True always means hidden."""

import torch
from torch import Tensor


def generate_square_subsequent_mask(sz: int) -> Tensor:
    """The causal mask in the form that is added to scores: 0 up to the diagonal, minus infinity above it."""
    return torch.full((sz, sz), float("-inf")).triu(1)


def generate_causal_mask(n: int) -> Tensor:
    """The same under its other name. `n` is the length of the target, `sequence.size(1)`, not the size of the batch."""
    return generate_square_subsequent_mask(n)


def future_mask(length: int, device: torch.device | None = None) -> Tensor:
    """The same as truth values, [T, T]: row t hides every column behind t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def padding_mask(enc_seq: Tensor, dec_seq: Tensor, pad_idx: int = 0) -> Tensor:
    """[B, rows, columns]: one row for each token of the first sequence, True where the second one has padding.

    The first sequence asks, the second is looked at: `padding_mask(source, source)` in the encoder,
    `padding_mask(target, target)` in the decoder, `padding_mask(target, source)` between them.
    """
    hidden = dec_seq.eq(pad_idx)[:, None, :]
    return hidden.expand(-1, enc_seq.size(1), -1)


def self_mask(target: Tensor, pad_idx: int = 0) -> Tensor:
    """Padding or future: a place is hidden as soon as one of the two hides it."""
    return padding_mask(target, target, pad_idx) | future_mask(target.size(1), target.device)
