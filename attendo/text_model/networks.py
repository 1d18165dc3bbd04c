"""Networks as a text model uses them: one or several, on a device, without dropout."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape


@runtime_checkable
class Reader(Protocol):
    """What reads a source and steps through a target: a network, or an ensemble of them."""

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Any: ...

    def start(self, memory: Any) -> Any: ...

    def step(self, ids: Int[Tensor, "R T"], state: Any) -> tuple[Float[Tensor, "R T V"], Any]: ...


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Without dropout, for sentences of any length; afterwards every part is in the mode it was in."""
    in_training = [module for network in networks for module in network.modules() if module.training]
    for module in in_training:
        module.training = False
    try:
        with kernels_for_any_shape():
            yield
    finally:
        for module in in_training:
            module.training = True


def longest_source(networks: Sequence[Transformer]) -> int | None:
    """Tokens that every one of them can read, and say, beside eos or bos; None where there is no end to them."""
    learned = [each.config.max_length - 1 for each in networks if each.config.positions == "learned"]
    return min(learned, default=None)


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise UsageError("unknown_device", name=name)
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UsageError("cuda_device_unavailable", name=name, count=torch.cuda.device_count())
    return torch.device(name)
