"""SSRU: a recurrence in place of the decoder's self-attention (Kim et al. 2019), as in the models inside Firefox.

    f_t = σ(W_f x_t + b_f)
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ W x_t        c_{-1} = 0
    y_t = ReLU(c_t)

A step needs the last cell only. All cells are kept nevertheless, as keys and values: so every decoder state, beam and
batch works as for attention, and a search can go back to an earlier position.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attendo.nn.attention import KeysValues, KVCache
from attendo.nn.linear import linear
from attendo.nn.masks import Mask


class SSRU(nn.Module):
    """The simpler simple recurrent unit. `num_heads` only divides the cells for the cache."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.candidate = nn.Linear(d_model, d_model, bias=False)
        self.forget = nn.Linear(d_model, d_model)

    def forward(
        self, x: Float[Tensor, "R T D"], past: KVCache | None, mask: Mask
    ) -> tuple[Float[Tensor, "R T D"], KeysValues]:
        """Return the outputs, and what the state keeps. `mask` is the mask of self-attention."""
        forget = linear(x, self.forget.weight, self.forget.bias).float().sigmoid()
        new = (1 - forget) * linear(x, self.candidate.weight, None).float()
        if (is_token := _find_tokens(past, mask, x.size(1))) is not None:  # padding does not change the cell
            forget, new = torch.where(is_token, forget, 1.0), torch.where(is_token, new, 0.0)
        first = torch.zeros_like(new[:, 0]) if past is None else past.last_values().flatten(1).float()
        cells = run_recurrence(forget, new, first).to(x.dtype)
        heads = cells.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        kept = KeysValues(heads, heads)
        return cells.relu(), kept if past is None else past.store(kept)


def run_recurrence(
    forget: Float[Tensor, "R T D"], new: Float[Tensor, "R T D"], first: Float[Tensor, "R D"]
) -> Float[Tensor, "R T D"]:
    """Return c_t = forget_t ⊙ c_{t-1} + new_t for all t, where c_{-1} is `first`."""
    cells, cell = [], first
    for gate, each in zip(forget.unbind(1), new.unbind(1), strict=True):
        cell = torch.addcmul(each, gate, cell)
        cells.append(cell)
    return torch.stack(cells, 1) if cells else new


def _find_tokens(past: KVCache | None, mask: Mask, columns: int) -> Bool[Tensor, "#R T 1"] | None:
    """Return which new columns hold tokens: those that the last query may attend to. None: all.

    Only a state that grows has padding. The masks of the others are about all of their storage.
    """
    if mask.visible is None or not (past is None or isinstance(past, KeysValues)):
        return None
    return mask.visible[:, 0, -1, mask.visible.size(-1) - columns :, None]
