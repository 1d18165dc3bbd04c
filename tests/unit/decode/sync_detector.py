"""Detects operations that would synchronise the host with a GPU, or copy data to it, at every step."""

from collections.abc import Mapping, Sequence
from typing import Any, Self
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode

SYNCHRONISING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh"}


class SyncDetector(TorchDispatchMode):
    """Collects such operations: reading a value, shapes that depend on values, tensors made from lists.

    Code that reads values only on a CPU runs as it does on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.caught: set[str] = set()
        self.operations = 0
        self._off_host = patch("attendo.decode.beam.is_on_host", lambda _: False)

    def __enter__(self) -> Self:
        self._off_host.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._off_host.stop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.operations += 1
        name = func.overloadpacket.__name__
        if name in SYNCHRONISING or (name in ("index", "index_put_", "index_put") and _is_boolean_index(args[1])):
            self.caught.add(name)
        return func(*args, **(kwargs or {}))


def _is_boolean_index(indices: Sequence[Any]) -> bool:
    """Indexing with a boolean mask calls `nonzero` first."""
    return any(each is not None and not each.dtype.is_floating_point and each.element_size() == 1 for each in indices)
