"""What of a pass is compiled: all of it, or its blocks one by one.

The whole pass gives the compiler most to join, and takes it minutes. Blocks of a kind share one piece of compiled code,
which takes a fraction of that, however many layers there are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.fx.experimental import _config as shapes

from attendo.model.transformer import Transformer
from attendo.nn.blocks import DecoderBlock
from attendo.train.loss import training_loss


class CompiledBlocks:
    """The blocks of a network, lent to it for one pass, for whoever generates goes on with its own; and the loss."""

    def __init__(self, network: Transformer) -> None:
        self.loss = for_any_shape(training_loss)
        self._lent = [(owner, name, for_any_shape(getattr(owner, name))) for owner, name in _parts(network)]

    @contextmanager
    def lent(self) -> Iterator[None]:
        for owner, name, compiled in self._lent:
            setattr(owner, name, compiled)
        try:
            yield
        finally:
            for owner, name, _ in self._lent:
                delattr(owner, name)


def _parts(network: Transformer) -> Iterator[tuple[nn.Module, str]]:
    """Methods that a pass calls, each with its owner."""
    for block in (*network.encoder, *network.decoder):
        yield block, "forward"
        if isinstance(block, DecoderBlock) and block.cross_attention is not None:
            yield block.cross_attention, "keys_values"


def mask_of_all(source_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """For a batch without padding: with no mask at all, everything would be compiled once more."""
    return torch.ones_like(source_ids, dtype=torch.bool)


def for_any_shape(work: Callable[..., Any]) -> Callable[..., Any]:
    """From the first batch on: kernels made for its shape alone would be other ones after a resume, which begins with
    another batch. And two sizes that are the same in the first batch are not taken for one.
    """
    shapes.use_duck_shape = False
    return torch.compile(work, dynamic=True)
