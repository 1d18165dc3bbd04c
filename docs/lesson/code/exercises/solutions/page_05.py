"""Solutions of page 5."""

from collections.abc import Callable

import torch
from torch import Tensor


def decoder_mask(target: Tensor) -> Tensor:
    """Ids [B, T] with padding 0 give a mask [B, T, T]: True where something is hidden."""
    future = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
    return future | (target == 0)[:, None, :]


def leaks(model: Callable[[Tensor], Tensor], ids: Tensor) -> bool:
    """`model` takes ids [1, T] and gives [1, T, V]. True if an output depends on a later token."""
    changed = ids.clone()
    changed[0, -1] += 1
    before, after = model(ids)[:, :-1], model(changed)[:, :-1]
    return not torch.equal(before, after)
