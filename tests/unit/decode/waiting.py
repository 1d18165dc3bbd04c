"""Finds out what would make a host wait for its device at every step, or send something there."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh"}


class Watch(TorchDispatchMode):
    """Collects such operations: looks at a number, shapes that depend on numbers, tensors made of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.caught: set[str] = set()
        self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.operations += 1
        name = func.overloadpacket.__name__
        if name in WAITING or (name in ("index", "index_put_", "index_put") and _by_truth(args[1])):
            self.caught.add(name)
        return func(*args, **(kwargs or {}))


def _by_truth(places: Sequence[Any]) -> bool:
    """A boolean index is looked through for its True places first."""
    return any(each is not None and not each.dtype.is_floating_point and each.element_size() == 1 for each in places)
