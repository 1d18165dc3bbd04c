"""torch.compile for the training pass or its blocks, and CUDA graphs of whole passes.

Compiling the whole pass gives the compiler most to fuse, and takes minutes. Blocks of the same class share one compiled
function, which takes a fraction of that, independent of the number of layers.

CUDA graphs remove the launch overhead of the host, which takes longer to launch a kernel than a GPU to run it.
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

_MAX_GRAPHS = 2000  # beyond this, batches of a new shape run eagerly
_WARMUP_PASSES = 5  # passes before the first capture: libraries initialise in them, which cannot be captured
ShapeKey = tuple[torch.Size, ...]
Work = Callable[[], None]


class CompiledBlocks:
    """Compiled blocks of a network and the compiled loss. `apply_temporarily` installs the blocks for one pass only.

    Generation keeps using the eager blocks.
    """

    def __init__(self, network: Transformer) -> None:
        self.loss = compile_dynamic(training_loss)
        self._compiled = [
            (owner, name, compile_dynamic(getattr(owner, name))) for owner, name in _methods_to_compile(network)
        ]

    @contextmanager
    def apply_temporarily(self) -> Iterator[None]:
        for owner, name, compiled in self._compiled:
            setattr(owner, name, compiled)
        try:
            yield
        finally:
            for owner, name, _ in self._compiled:
                delattr(owner, name)


def _methods_to_compile(network: Transformer) -> Iterator[tuple[nn.Module, str]]:
    """Yield the methods that a pass calls, each with its owner."""
    for block in (*network.encoder, *network.decoder):
        yield block, "forward"
        if isinstance(block, DecoderBlock) and block.cross_attention is not None:
            yield block.cross_attention, "keys_values"


def full_mask(source_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """Return an all-True mask for a batch without padding. A mask of None would compile everything a second time."""
    return torch.ones_like(source_ids, dtype=torch.bool)


def compile_dynamic(work: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with dynamic shapes from the first batch on.

    Kernels for the first shape alone would differ after a resume, which starts with another batch. Duck shaping is off,
    so that equal sizes in the first batch are not assumed equal later.
    """
    shapes.use_duck_shape = False
    return torch.compile(work, dynamic=True)


@runtime_checkable
class GraphRecorder(Protocol):
    """Captures work and replays it: a GPU (`CudaGraphRecorder`), or a substitute in tests."""

    @property
    def device(self) -> torch.device: ...

    def run(self, work: Work) -> None:
        """Run the work eagerly, on the stream used for capture."""

    def record(self, work: Work) -> Work:
        """Capture the work without running it. Calling the result runs it."""


@dataclass(frozen=True)
class CapturedGraph:
    """A captured pass. It reads its batch from the same memory at every replay."""

    launch: Work
    batch: Batch

    def replay(self, batch: Batch) -> None:
        for here, there in zip(self.batch.tensors().values(), batch.tensors().values(), strict=True):
            here.copy_(there, non_blocking=True)
        self.launch()


class CudaGraphedPass:
    """Runs `run_pass` once per batch. The first batch of a shape runs eagerly, the second is captured.

    The eager run compiles, autotunes and allocates for the shape, which fails during capture. `run_pass` must read only
    its batch and tensors with fixed addresses, and must not synchronise with the device.
    """

    def __init__(self, run_pass: Callable[[Batch], None], recorder: GraphRecorder) -> None:
        self._run_pass, self._recorder = run_pass, recorder
        self._num_passes = 0
        self._seen_shapes: set[ShapeKey] = set()
        self._graphs: dict[ShapeKey, CapturedGraph] = {}

    def __call__(self, batch: Batch) -> None:
        self._num_passes += 1
        shape = tuple(each.shape for each in batch.tensors().values())
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
        own = batch.to(self._recorder.device).repeat(1)  # a copy: every replay overwrites it with another batch
        return CapturedGraph(self._recorder.record(partial(self._run_pass, own)), own)
