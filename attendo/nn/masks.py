"""Masks: which keys a query may look at. Boolean, True = may be looked at, made here and nowhere else.

The network needs three: source padding in the encoder, source padding in cross-attention, and in the decoder the causal
mask together with target padding.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """What each query may look at: everything, unless `visible` or `causal` says less. At most one of them is set.

    A causal mask over a whole target stays a flag, because a mask tensor would shut out the flash kernel.
    """

    visible: Bool[Tensor, "#B 1 #T S"] | None = None
    causal: bool = False

    def matrix(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#B 1 #T S"] | None:
        """The same mask as a tensor that broadcasts over [B, H, T, S]; None where everything may be looked at."""
        return _causal_matrix(0, queries, keys, device) if self.causal else self.visible


def padding_mask(is_token: Bool[Tensor, "B S"] | None) -> Mask:
    """Every query may look at the real tokens of its own sentence, never at padding."""
    return Mask(None if is_token is None else is_token[:, None, None, :])


def causal_mask(past: int, queries: int, is_token: Bool[Tensor, "B S"] | None, device: torch.device) -> Mask:
    """Query i stands at position `past + i` and may look at the positions up to its own that hold a token.

    `is_token` covers past and new positions. Targets padded on the right do not need it: their padding lies in the
    future of every real token.
    """
    if is_token is None and past == 0 and queries > 1:
        return Mask(causal=True)
    if queries == 1:  # a single new token sees all that came before: the mask costs nothing while generating
        return padding_mask(is_token)
    visible = _causal_matrix(past, queries, past + queries, device)
    return Mask(visible if is_token is None else visible & is_token[:, None, None, :])


def _causal_matrix(past: int, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "1 1 T S"]:
    position = torch.arange(past, past + queries, device=device)
    return (torch.arange(keys, device=device)[None, :] <= position[:, None])[None, None]
