"""Activation checkpointing (Chen et al. 2016): a block keeps its input for the backward pass and is computed again.

https://arxiv.org/abs/1604.06174. A network of L blocks stores L inputs and the activations of one block, instead of the
activations of L blocks. Dropout draws the same numbers in both passes.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from attendo.nn.attention import without_cudnn_attention
from attendo.nn.blocks import DecoderBlock, EncoderBlock


class CheckpointedBlock(nn.Module):
    """A block that is computed again in the backward pass. Without gradients it is a plain block."""

    is_enabled = True

    def forward(self, *arguments: Any, **options: Any) -> Any:
        run = super().forward
        if not (torch.is_grad_enabled() and CheckpointedBlock.is_enabled):
            return run(*arguments, **options)
        return checkpoint(run, *arguments, use_reentrant=False, context_fn=_make_contexts, **options)


class CheckpointedEncoderBlock(CheckpointedBlock, EncoderBlock):
    """An encoder block that is computed again in the backward pass."""


class CheckpointedDecoderBlock(CheckpointedBlock, DecoderBlock):
    """A decoder block that is computed again in the backward pass."""


def checkpoint_activations(network: nn.Module) -> None:
    """Make every block of a network one that is computed again. Names and values of its weights do not change."""
    for block in network.modules():
        if type(block) is EncoderBlock:
            block.__class__ = CheckpointedEncoderBlock
        elif type(block) is DecoderBlock:
            block.__class__ = CheckpointedDecoderBlock


@contextmanager
def keep_activations() -> Iterator[None]:
    """Run checkpointed blocks as plain ones, to measure what they would store."""
    CheckpointedBlock.is_enabled = False
    try:
        yield
    finally:
        CheckpointedBlock.is_enabled = True


def _make_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts of both passes. The second one must choose the same attention kernel."""
    return nullcontext(), without_cudnn_attention()
