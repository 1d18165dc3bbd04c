"""What of a pass is compiled: all of it, or its blocks one by one.

The whole pass gives the compiler most to join, and takes it minutes. Blocks of a kind share one piece of compiled code,
which takes a fraction of that, however many layers there are.

the host, which takes longer to ask for a kernel than a GPU to run it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.fx.experimental import _config as shapes

from attendo.data.batch import Batch
from attendo.model.transformer import Transformer
from attendo.nn.blocks import DecoderBlock
from attendo.train.loss import training_loss

_MAX_GRAPHS = 2000  # beyond them a batch of a new shape runs as it comes
_WARMUP_PASSES = 5  # passes before the first recording: libraries set themselves up in them, which cannot be recorded
ShapeKey = tuple[torch.Size | None, ...]
Work = Callable[[], None]


class CompiledBlocks:
    """The blocks of a network, lent to it for one pass, for whoever generates goes on with its own; and the loss."""

    def __init__(self, network: Transformer) -> None:
        self.loss = compile_dynamic(training_loss)
        self._compiled = [
            (owner, name, compile_dynamic(getattr(owner, name))) for owner, name in _methods_to_compile(network)
        ]

    @contextmanager
    def applied(self) -> Iterator[None]:
        for owner, name, compiled in self._compiled:
            setattr(owner, name, compiled)
        try:
            yield
        finally:
            for owner, name, _ in self._compiled:
                delattr(owner, name)


def _methods_to_compile(network: Transformer) -> Iterator[tuple[nn.Module, str]]:
    """Methods that a pass calls, each with its owner."""
    for block in (*network.encoder, *network.decoder):
        yield block, "forward"
        if isinstance(block, DecoderBlock) and block.cross_attention is not None:
            yield block.cross_attention, "keys_values"


def full_mask(source_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """For a batch without padding: with no mask at all, everything would be compiled once more."""
    return torch.ones_like(source_ids, dtype=torch.bool)


def compile_dynamic(work: Callable[..., Any]) -> Callable[..., Any]:
    """From the first batch on: kernels made for its shape alone would be other ones after a resume, which begins with
    another batch. And two sizes that are the same in the first batch are not taken for one.
    """
    shapes.use_duck_shape = False
    return torch.compile(work, dynamic=True)


@runtime_checkable
class GraphRecorder(Protocol):
    """What can do work again as it was done before: a GPU (`CudaGraphRecorder`), or what stands in for it in a test."""

    @property
    def device(self) -> torch.device: ...

    def run(self, work: Work) -> None:
        """As it comes, in the place where work is recorded."""

    def record(self, work: Work) -> Work:
        """Does nothing but note it. What is returned does the work."""


@dataclass(frozen=True)
class CapturedGraph:
    """A recorded pass reads its batch from the same memory every time."""

    launch: Work
    batch: Batch

    def replay(self, batch: Batch) -> None:
        for here, there in zip(batch_tensors(self.batch), batch_tensors(batch), strict=True):
            if here is not None and there is not None:
                here.copy_(there, non_blocking=True)
        self.launch()


class CudaGraphedPass:
    """Does what `run_pass` does, once for each batch. The first batch of a shape runs as it comes, the second is recorded.

    What has run once can be recorded: whatever its shape must have compiled, tried out or made room for is there. In a
    recording that fails. `run_pass` must read nothing but its batch and tensors that stay where they are, and must not
    wait for the device.
    """

    def __init__(self, run_pass: Callable[[Batch], None], recorder: GraphRecorder) -> None:
        self._run_pass, self._recorder = run_pass, recorder
        self._num_passes = 0
        self._seen_shapes: set[ShapeKey] = set()
        self._graphs: dict[ShapeKey, CapturedGraph] = {}

    def __call__(self, batch: Batch) -> None:
        self._num_passes += 1
        shape = tuple(None if each is None else each.shape for each in batch_tensors(batch))
        if shape not in self._graphs and not self._can_record(shape):
            self._seen_shapes.add(shape)
            self._recorder.run(partial(self._run_pass, batch))
            return
        if shape not in self._graphs:
            self._graphs[shape] = self._record(batch)
        self._graphs[shape].replay(batch)

    def _can_record(self, shape: ShapeKey) -> bool:
        return shape in self._seen_shapes and self._num_passes > _WARMUP_PASSES and len(self._graphs) < _MAX_GRAPHS

    def _record(self, batch: Batch) -> CapturedGraph:
        own = batch.to(self._recorder.device).repeat(1)  # a copy: every replay writes another batch into it
        return CapturedGraph(self._recorder.record(partial(self._run_pass, own)), own)


def batch_tensors(batch: Batch) -> tuple[Tensor | None, ...]:
    return batch.source_ids, batch.source_mask, batch.target_ids, batch.labels
