"""Finds out what would make a host wait for its device at every step, or send something there."""

from collections.abc import Mapping, Sequence
from typing import Any, Self
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh"}


class Watch(TorchDispatchMode):
    """Collects such operations: looks at a number, shapes that depend on numbers, tensors made of lists.

    What may be looked at on a CPU alone is treated as on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.caught: set[str] = set()
        self.operations = 0
        self._elsewhere = patch("attendo.decode.beam.is_on_host", lambda _: False)

    def __enter__(self) -> Self:
        self._elsewhere.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._elsewhere.stop()

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
