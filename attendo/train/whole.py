"""Who holds which weights: every process all of them. `Sharded` divides them, behind the same methods."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from attendo.model.transformer import Transformer


class Whole:
    """`network` is the one whose weights learn; here it is the very one that is validated and saved."""

    sharded = False

    def __init__(self, network: Transformer) -> None:
        self.network = network

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights, or what is shaped like them, as a checkpoint holds them. All ranks must ask together."""
        return tensors

    def parts(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of the tensors of a checkpoint, what this rank holds."""
        return tensors

    def total(self, norm: Tensor) -> Tensor:
        """The norm of all gradients, given that of those at hand."""
        return norm

    def fill(self) -> None:
        """See to it that the network to be validated and saved has the weights that were learned."""

    def empty(self) -> None:
        """It is not needed for a while."""

    @contextmanager
    def filled(self) -> Iterator[None]:
        self.fill()
        try:
            yield
        finally:
            self.empty()
