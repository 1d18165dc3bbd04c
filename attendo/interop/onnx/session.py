"""Network run by ONNX Runtime: sessions, IO binding, KV cache and huge pages.

Linux moves allocated memory into huge pages on request (madvise). If it refuses, nothing changes.
"""

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from attendo.decode.search import ScoringState
from attendo.errors import ModelError, UsageError, require_package
from attendo.interop.errors import convert_errors
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer, check_mask

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from attendo.interop.onnx.graph_builder import ActivationRanges

_INITIAL_CAPACITY = 32  # positions; doubled when full
_OUTPUT_NAMES = ("logits", "log_probs")
_NUMPY_TYPES = {torch.float32: np.float32, torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_}
# A thread that waits for work spins for this long. Without spinning, waking it takes longer than a small operation.
# With unlimited spinning, it takes CPU time from other code, such as torch between two steps.
_SPIN_MICROSECONDS = "20"  # µs
_DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]  # 120 µs for 32 rows; the two nodes that it replaces take 30
_HUGE_PAGE_BYTES = 1 << 21
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # madvise: huge pages from now on, and immediately
_MAPS = Path("/proc/self/maps")
_HUGE_PAGE_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
AddressRange = tuple[int, int]  # start address, and end address (exclusive)


@dataclass(frozen=True)
class OnnxMemory:
    """Encoder outputs, by the names of the step graph's inputs."""

    tensors: Mapping[str, Tensor]

    @property
    def sentences(self) -> int:
        return self.tensors["mask"].size(0)

    def select(self, sentences: Int[Tensor, " N"]) -> "OnnxMemory":
        return OnnxMemory({name: each.index_select(0, sentences) for name, each in self.tensors.items()})


@dataclass(frozen=True)
class OnnxState(ScoringState):
    """Decoder state with a shared KV cache. Each row writes to its own part, and written entries never move.

    A step writes in place: a second step from the same state overwrites the first.
    """

    memory: OnnxMemory
    cache: "BoundCache | None" = None  # None before the first step
    order: Int[Tensor, "R C"] | None = None  # row of the sentence that wrote the entry of a row at a position
    length: int = 0
    log_probs: Float[Tensor, "R V"] | None = None  # of the next tokens, valid until the next step

    def reorder(self, parents: Int[Tensor, " R"]) -> "OnnxState":
        """Return the state in which each row continues a parent row of its sentence."""
        return self if self.order is None else replace(self, order=self.order.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "OnnxState":
        """Return the state of the given sentences and their rows only."""
        memory = self.memory.select(sentences)
        if self.cache is None:
            return replace(self, memory=memory)
        return replace(self.reorder(rows), memory=memory, cache=self.cache.select(sentences, memory), log_probs=None)


class BoundCache:
    """Keys and values of all layers, [R, H, C, K] each, with the IO binding of a step.

    Binding takes as long as some of the work of a step. So it is done once, and repeated only if the buffers or the
    session change.
    """

    def __init__(self, session: "InferenceSession", memory: OnnxMemory, caches: Mapping[str, Tensor]) -> None:
        self._caches = caches
        first = next(iter(caches.values()))
        rows, self.capacity = first.size(0), first.size(2)
        self._width = rows // memory.sentences if memory.sentences else 1
        self._row_in_sentence = np.tile(np.arange(self._width), memory.sentences)
        self.order = torch.zeros(rows, self.capacity, dtype=torch.int32)
        ids, position = torch.zeros(rows, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
        self._ids, self._position, self._order = ids.numpy(), position.numpy(), self.order.numpy()
        self._inputs = {
            "ids": ids,
            "position": position,
            "width": torch.tensor([self._width], dtype=torch.int32),
            "order": self.order.view(-1, self._width, self.capacity),
            **{name: each.contiguous() for name, each in memory.tensors.items()},
            **caches,
        }
        outputs = {each.name: each.shape[1:] for each in session.get_outputs()}
        buffers = {name: torch.empty(rows, *outputs[name]) for name in _OUTPUT_NAMES if name in outputs}
        self.logits = buffers["logits"]
        self.log_probs = (
            buffers["log_probs"][:, 0] if "log_probs" in buffers else None
        )  # graphs of older exports lack them
        self._log_probs_numpy = None if self.log_probs is None else self.log_probs.numpy()
        self._outputs = {**{name.replace("past", "present"): each for name, each in caches.items()}, **buffers}
        self._bind(session)

    def _bind(self, session: "InferenceSession") -> None:
        self._session, self._binding = session, session.io_binding()
        for name, tensor in self._inputs.items():
            self._binding.bind_input(name, *_binding_args(tensor))
        for name, tensor in self._outputs.items():
            self._binding.bind_output(name, *_binding_args(tensor))

    @staticmethod
    def empty(session: "InferenceSession", memory: OnnxMemory, rows: int) -> "BoundCache":
        shapes = {each.name: each.shape for each in session.get_inputs() if each.name.startswith("past_")}
        # Uninitialised memory is safe: a position is read only after it is written.
        parts = {
            name: torch.empty(rows, heads, _INITIAL_CAPACITY, width) for name, (_, heads, _, width) in shapes.items()
        }
        return BoundCache(session, memory, parts)

    def set_order(self, order: Int[Tensor, "R C"]) -> None:
        """Set which row wrote each entry that a row attends to."""
        if order is not self.order:
            self._order[:] = order.numpy()

    def step(self, ids: NDArray[np.int64], length: int, session: "InferenceSession") -> None:
        """Run a step: write keys and values at position `length`, and the logits of the next tokens."""
        if session is not self._session:
            self._bind(session)
        if self._width > 1:  # with width 1 it is always 0
            self._order[:, length] = self._row_in_sentence
        self._ids[:] = ids
        self._position[0] = length
        session.run_with_iobinding(self._binding)

    def log_probs_numpy(self) -> NDArray[np.float32]:
        """Return the log-probabilities [R, V] as a NumPy array."""
        return self.logits[:, 0].log_softmax(-1).numpy() if self._log_probs_numpy is None else self._log_probs_numpy

    def grow(self, memory: OnnxMemory) -> "BoundCache":
        """Return a copy with twice the capacity."""
        doubled = {name: torch.cat((each, torch.empty_like(each)), dim=2) for name, each in self._caches.items()}
        return BoundCache(self._session, memory, doubled)

    def select(self, sentences: Int[Tensor, " N"], memory: OnnxMemory) -> "BoundCache":
        """Return the cache of the given sentences; `memory` is their memory."""
        rows = (sentences[:, None] * self._width + torch.arange(self._width)).flatten()
        return BoundCache(
            self._session, memory, {name: each.index_select(0, rows) for name, each in self._caches.items()}
        )


def _binding_args(tensor: Tensor) -> tuple[str, int, Any, Sequence[int], int]:
    return "cpu", 0, _NUMPY_TYPES[tensor.dtype], tuple(tensor.shape), tensor.data_ptr()


class OnnxNetwork:
    """Network of an encoder graph and a step graph, as files or bytes. `config` is that of the original network."""

    def __init__(
        self, encoder: Path | bytes, step: Path | bytes, config: ModelConfig, threads: int | None = None
    ) -> None:
        self.config, self.threads = config, threads or torch.get_num_threads()
        self._graphs = encoder, step
        self._encoder = _open_session(encoder, self.threads)
        with huge_pages():  # every step reads all of its weights
            self._step_session = _open_session(step, self.threads)
        self._all_threads_session, self._is_last = self._step_session, lambda: False

    @cached_property
    def single_threaded(self) -> "OnnxNetwork":
        """The same network with one thread per call. Several threads can call it concurrently."""
        return self if self.threads == 1 else OnnxNetwork(*self._graphs, self.config, threads=1)

    def single_threaded_until(self, is_last: Callable[[], bool]) -> "OnnxNetwork":
        """Return `single_threaded`, but a step uses all threads once `is_last` returns True."""
        network = copy(self.single_threaded)
        network._all_threads_session, network._is_last = self._step_session, is_last
        return network

    @property
    def session(self) -> "InferenceSession":
        """Session for the next step."""
        return self._all_threads_session if self._is_last() else self._step_session

    @staticmethod
    def from_network(
        network: Transformer, ranges: "ActivationRanges | None" = None, threads: int | None = None
    ) -> "OnnxNetwork":
        """Build the graphs in memory, without a file; in int8 if `ranges` are given."""
        from attendo.interop.onnx.graphs import encoder_graph, step_graph  # needs onnx, which nothing else here imports

        encoder, step = (make(network, ranges).SerializeToString() for make in (encoder_graph, step_graph))
        return OnnxNetwork(encoder, step, network.config, threads)

    device = torch.device("cpu")
    continues_text = False

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> OnnxMemory:
        check_mask(source_mask, source_ids)
        self._check(source_ids, self.config.source_vocab_size or 0, source_ids.size(1))
        mask = torch.ones_like(source_ids, dtype=torch.bool) if source_mask is None else source_mask
        names = [each.name for each in self._encoder.get_outputs()]
        with _convert_onnx_errors("encoder.onnx"):
            outputs = self._encoder.run(names, {"source_ids": source_ids.numpy(), "source_mask": mask.numpy()})
        return OnnxMemory({name: torch.from_numpy(each) for name, each in zip(names, outputs, strict=True)})

    def start(self, memory: OnnxMemory) -> OnnxState:
        """Return the state before the first step."""
        return OnnxState(memory)

    def step(self, ids: Int[Tensor, "R T"], state: OnnxState) -> tuple[Float[Tensor, "R T V"], OnnxState]:
        """Read tokens of every row, one after the other. The R / B rows of a sentence are adjacent.

        The logits of one token are valid until the next step, which writes to the same memory.
        """
        self._check(ids, self.config.target_vocab_size or 0, state.length + ids.size(1))
        with _convert_onnx_errors("step.onnx"):
            if ids.size(1) == 1:
                return self._one_step(ids, state)
            columns = []
            for column in ids.split(1, dim=1):
                logits, state = self._one_step(column.contiguous(), state)
                columns.append(logits.clone())
            return torch.cat(columns, dim=1), state

    def _one_step(self, ids: Tensor, state: OnnxState) -> tuple[Tensor, OnnxState]:
        rows, storage, order = ids.size(0), state.cache, state.order
        if storage is None or order is None:
            storage = BoundCache.empty(self._step_session, state.memory, rows)
            order = torch.zeros(rows, storage.capacity, dtype=torch.int32)
        if state.length == storage.capacity:
            storage = storage.grow(state.memory)
            order = torch.nn.functional.pad(order, (0, storage.capacity - order.size(1)))
        storage.set_order(order)
        storage.step(ids.numpy(), state.length, self.session)
        return storage.logits, OnnxState(state.memory, storage, storage.order, state.length + 1, storage.log_probs)

    def in_place_stepper(self, state: OnnxState) -> "OnnxInPlaceStepper":
        """Return a stepper for many steps from this state."""
        return OnnxInPlaceStepper(self, state)

    @property
    def max_positions(self) -> float:
        """Maximum number of positions."""
        return self.config.max_length if self.config.positions == "learned" else math.inf

    def _check(self, ids: Tensor, vocab_size: int, length: int) -> None:
        """Raise a `UsageError` for a wrong id or length; ONNX Runtime's own error would be unreadable."""
        # Viewed as unsigned, a negative id is larger than any vocabulary.
        if ids.numel() and int(ids.numpy().view(np.uint64).max()) >= vocab_size:
            raise UsageError(
                "token_id_outside_vocabulary", token_id=_find_invalid_id(ids), size=vocab_size, last=vocab_size - 1
            )
        if length > self.max_positions:
            raise UsageError("sequence_exceeds_max_length", count=length, max_length=self.config.max_length)


class OnnxInPlaceStepper:
    """Steps of a network with NumPy, which avoids the overhead of torch between steps."""

    def __init__(self, network: OnnxNetwork, state: OnnxState) -> None:
        self._network, self._base_state = network, state
        self._length: int = state.length
        self._capacity: float = state.length

    @property
    def state(self) -> OnnxState:
        """State after the steps so far."""
        return replace(self._base_state, length=self._length)

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read a token of every row [R, 1]. Return next-token log-probabilities [R, V], valid until the next step."""
        if self._length < self._capacity:
            with _convert_onnx_errors("step.onnx"):
                self._cache.step(ids, self._length, self._network.session)
            self._length += 1
        else:
            self._grow(ids)
        return self._cache.log_probs_numpy()

    def _grow(self, ids: NDArray[np.int64]) -> None:
        """Take a full step of the network, which checks the ids and grows the cache."""
        _, self._base_state = self._network.step(torch.from_numpy(ids), self.state)
        assert self._base_state.cache is not None  # `step` sets it
        self._cache = self._base_state.cache
        self._length = self._base_state.length
        self._capacity = min(self._cache.capacity, self._network.max_positions)


def _find_invalid_id(ids: Tensor) -> int:
    low, high = (int(each) for each in ids.aminmax())
    return low if low < 0 else high


def _convert_onnx_errors(name: str) -> AbstractContextManager[None]:
    """Convert ONNX Runtime errors to a `ModelError`, such as for a graph that does not match its folder."""
    return convert_errors(partial(ModelError, "onnx_inference_failed", name=name), keep_out_of_memory=True)


def _open_session(graph: Path | bytes, threads: int) -> "InferenceSession":
    require_package("onnxruntime", "export", "an ONNX model")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # fatal only: errors raise an exception
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_MICROSECONDS)
    name = "a graph" if isinstance(graph, bytes) else str(graph)
    with convert_errors(partial(ModelError, "onnx_load_failed", name=name)):
        return onnxruntime.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_DISABLED_OPTIMIZERS,
        )


@contextmanager
def huge_pages() -> Iterator[None]:
    """Move memory that is allocated within the context into huge pages at its end."""
    before = _anonymous_memory() if _huge_pages_enabled() else []
    yield
    if not before:
        return
    advise = ctypes.CDLL(None).madvise
    for begin, end in huge_page_ranges(new_ranges(_anonymous_memory(), before)):
        for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):  # a refusal has no effect
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def new_ranges(after: Sequence[AddressRange], before: Sequence[AddressRange]) -> Iterator[AddressRange]:
    """Yield the parts of `after` that are not in `before`. Both are sorted."""
    for begin, end in after:
        for known, known_end in before:
            if known < end and begin < known_end:
                if begin < known:
                    yield begin, known
                begin = known_end
        if begin < end:
            yield begin, end


def huge_page_ranges(ranges: Iterator[AddressRange]) -> Iterator[AddressRange]:
    """Yield the part of each range that consists of complete huge pages."""
    for begin, end in ranges:
        first, last = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES, end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        if first < last:
            yield first, last


def _huge_pages_enabled() -> bool:
    return _HUGE_PAGE_SETTING.is_file() and "[madvise]" in _HUGE_PAGE_SETTING.read_text() and _MAPS.is_file()


def _anonymous_memory() -> list[AddressRange]:
    """Return the private writable memory of the process that no file backs."""
    parts = []
    for line in _MAPS.read_text().splitlines():
        addresses, rights, _, _, file, *name = line.split()
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]):
            begin, end = addresses.split("-")
            parts.append((int(begin, 16), int(end, 16)))
    return parts
