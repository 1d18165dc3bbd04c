"""Solutions of page 6."""

from torch import Tensor


def cross_mask(target: Tensor, source: Tensor) -> Tensor:
    """Ids [B, T] and [B, S] with padding 0 give a mask [B, T, S]: True where something is hidden."""
    return (source == 0)[:, None, :].expand(-1, target.size(1), -1)


def alignment(maps: Tensor) -> list[int]:
    """The weights [h, T, S] give, for each row, the source position with the largest mean of the heads."""
    return maps.mean(0).argmax(-1).tolist()
