"""A moving average of the weights: smoother than the last step's, and often better."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """average ← d · average + (1 - d) · weights after every step, where d grows to `decay` over the first steps."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = network
        self.decay = decay
        self.weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}

    @torch.no_grad()
    def update(self, step: int, skipped: Tensor) -> None:
        """`skipped` is 1 on the device where the step changed nothing; the average then stays too."""
        decay = min(self.decay, (1 + step) / (10 + step))  # early weights are soon forgotten
        keep = torch.where(skipped > 0, 1.0, decay)
        trained = {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}
        averages = [self.weights[name] for name in trained]
        torch._foreach_mul_(averages, keep)
        torch._foreach_add_(averages, torch._foreach_mul(list(trained.values()), 1 - keep))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The network with the averaged weights, for validation and saving."""
        now = {name: weight.detach().clone() for name, weight in self.network.named_parameters()}
        self.stay()
        try:
            yield
        finally:
            _copy(self.network, now)

    def stay(self) -> None:
        """The network has the averaged weights from now on."""
        _copy(self.network, self.weights)


@torch.no_grad()
def _copy(network: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, weight in network.named_parameters():
        weight.copy_(weights[name])
