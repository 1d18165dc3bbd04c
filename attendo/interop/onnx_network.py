"""A network that ONNX Runtime computes, for our own search: what a `Transformer` does while it generates."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from attendo.errors import AttendoError, ModelError, UsageError, cut_text, require_package
from attendo.interop.large_pages import in_large_pages
from attendo.interop.onnx_storage import OnnxMemory, OnnxState, Storage
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer, check_mask
from attendo.nn.out_of_memory import ran_out

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from attendo.interop.onnx_nodes import Ranges

# A thread that waits for work looks for it again and again, for that long. Without it, being woken takes longer than
# small pieces of work; without an end, it takes the time of whoever else computes, such as torch in between.
_WAITING = "20"  # µs
_SHOWN = 200  # characters of its errors
_WORSE = ["SkipLayerNormFusion"]  # 120 µs for 32 rows, where the two nodes that it replaces take 30


class OnnxNetwork:
    """Graphs as files or as bytes; `config` is that of the network they were made from."""

    def __init__(
        self, encoder: Path | bytes, step: Path | bytes, config: ModelConfig, threads: int | None = None
    ) -> None:
        self.config, self.threads = config, threads or torch.get_num_threads()
        self._graphs = encoder, step
        self._encoder = _opened(encoder, self.threads)
        with in_large_pages():  # its weights are read at every step
            self._step = _opened(step, self.threads)
        self._with_all, self._alone = self._step, lambda: False

    @cached_property
    def in_one_thread(self) -> "OnnxNetwork":
        """The same, computed by whichever thread asks: several can at once."""
        return self if self.threads == 1 else OnnxNetwork(*self._graphs, self.config, threads=1)

    def in_one_thread_until(self, alone: Callable[[], bool]) -> "OnnxNetwork":
        """As `in_one_thread`, but with every thread from the step on before which it is `alone`."""
        network = copy(self.in_one_thread)
        network._with_all, network._alone = self._step, alone
        return network

    @property
    def runtime(self) -> "InferenceSession":
        """What takes the next step."""
        return self._with_all if self._alone() else self._step

    @staticmethod
    def of(network: Transformer, ranges: "Ranges | None" = None, threads: int | None = None) -> "OnnxNetwork":
        """The same weights, without a file; with `ranges`, in int8."""
        from attendo.interop.onnx_graphs import encoder_graph, step_graph  # need onnx, which nothing else here does

        encoder, step = (make(network, ranges).SerializeToString() for make in (encoder_graph, step_graph))
        return OnnxNetwork(encoder, step, network.config, threads)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> OnnxMemory:
        check_mask(source_mask, source_ids)
        self._check(source_ids, self.config.source_vocab_size or 0, source_ids.size(1))
        mask = torch.ones_like(source_ids, dtype=torch.bool) if source_mask is None else source_mask
        names = [each.name for each in self._encoder.get_outputs()]
        with _explained("encoder.onnx"):
            made = self._encoder.run(names, {"source_ids": source_ids.numpy(), "source_mask": mask.numpy()})
        return OnnxMemory({name: torch.from_numpy(each) for name, each in zip(names, made, strict=True)})

    def start(self, memory: OnnxMemory) -> OnnxState:
        """The state before the first step."""
        return OnnxState(memory)

    def step(self, ids: Int[Tensor, "R 1"], state: OnnxState) -> tuple[Float[Tensor, "R 1 V"], OnnxState]:
        """One more token of every row; as many rows side by side as there are more of them belong to a sentence.

        The logits stay what they are until another step is taken: the next ones lie in the same memory.
        """
        if ids.size(1) != 1:
            raise UsageError("onnx_multiple_tokens_per_step", count=ids.size(1))
        self._check(ids, self.config.target_vocab_size or 0, state.length + 1)
        with _explained("step.onnx"):
            return self._one_step(ids, state)

    def _one_step(self, ids: Tensor, state: OnnxState) -> tuple[Tensor, OnnxState]:
        rows, storage, order = ids.size(0), state.storage, state.order
        if storage is None or order is None:
            storage = Storage.empty(self._step, state.memory, rows)
            order = torch.zeros(rows, storage.capacity, dtype=torch.int32)
        if state.length == storage.capacity:
            storage = storage.grown(state.memory)
            order = torch.nn.functional.pad(order, (0, storage.capacity - order.size(1)))
        storage.follow(order)
        storage.step(ids.numpy(), state.length, self.runtime)
        return storage.logits, OnnxState(state.memory, storage, storage.order, state.length + 1, storage.log_probs)

    def in_place(self, state: OnnxState) -> "InPlace":
        """For many steps from a state on."""
        return InPlace(self, state)

    def room(self, sentences: int, source_width: int, width: int, capacity: int) -> Any:
        raise UsageError("onnx_fixed_size_unsupported")

    @property
    def positions(self) -> float:
        """The most that there can be."""
        return self.config.max_length if self.config.positions == "learned" else math.inf

    def _check(self, ids: Tensor, vocab_size: int, length: int) -> None:
        """What the runtime would say of a wrong id names nothing that a person knows."""
        # As a number without a sign, one below 0 is larger than any vocabulary.
        if ids.numel() and int(ids.numpy().view(np.uint64).max()) >= vocab_size:
            raise UsageError(
                "token_id_outside_vocabulary", token_id=_outermost(ids), size=vocab_size, last=vocab_size - 1
            )
        if length > self.positions:
            raise UsageError("sequence_exceeds_max_length", count=length, max_length=self.config.max_length)


class InPlace:
    """Steps of a network from one state on, by NumPy: what torch has to do between two of them takes time of theirs."""

    def __init__(self, network: OnnxNetwork, state: OnnxState) -> None:
        self._network, self._first = network, state
        self._length: int = state.length
        self._room: float = state.length

    @property
    def state(self) -> OnnxState:
        """Behind the steps that were taken."""
        return replace(self._first, length=self._length)

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """One more token of every row [R, 1]: log-probabilities [R, V] of the next, until another step is taken."""
        if self._length < self._room:
            with _explained("step.onnx"):
                self._storage.step(ids, self._length, self._network.runtime)
            self._length += 1
        else:
            self._make_room(ids)
        return self._storage.numbers()

    def _make_room(self, ids: NDArray[np.int64]) -> None:
        """By a step that sees to all that there is to see to."""
        _, self._first = self._network.step(torch.from_numpy(ids), self.state)
        assert self._first.storage is not None  # it has written there
        self._storage = self._first.storage
        self._length = self._first.length
        self._room = min(self._storage.capacity, self._network.positions)


def _outermost(ids: Tensor) -> int:
    low, high = (int(each) for each in ids.aminmax())
    return low if low < 0 else high


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """What ONNX Runtime says of a graph that does not fit the other files of its folder is a `ModelError`."""
    try:
        yield
    except AttendoError:
        raise
    except Exception as error:  # of a dozen classes that have nothing else in common
        if ran_out(error):
            raise
        reason = cut_text(" ".join(str(error).split()), _SHOWN)
        raise ModelError("onnx_inference_failed", name=name, reason=reason) from None


def _opened(graph: Path | bytes, threads: int) -> "InferenceSession":
    require_package("onnxruntime", "export", "an ONNX model")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is told by an exception
    options.add_session_config_entry("session.intra_op.spin_duration_us", _WAITING)
    try:
        return onnxruntime.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_WORSE,
        )
    except Exception as error:  # of a dozen classes that have nothing else in common
        name = "a graph" if isinstance(graph, bytes) else str(graph)
        raise ModelError("onnx_load_failed", name=name, reason=cut_text(" ".join(str(error).split()), _SHOWN)) from None
