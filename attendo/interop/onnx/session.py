"""A network that ONNX Runtime computes: sessions, IO binding, KV cache and huge pages.

Linux gives them to whoever asks, for memory that is there already. Where it does not, everything stays as it was.
"""

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from attendo.errors import AttendoError, ModelError, UsageError, cut_text, require_package
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer, check_mask
from attendo.nn.devices import is_out_of_memory

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from attendo.interop.onnx.graph_builder import ActivationRanges

_INITIAL_CAPACITY = 32  # positions at first; twice as many whenever they are used up
_OUTPUT_NAMES = ("logits", "log_probs")
_NUMPY_TYPES = {torch.float32: np.float32, torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_}
# A thread that waits for work looks for it again and again, for that long. Without it, being woken takes longer than
# small pieces of work; without an end, it takes the time of whoever else computes, such as torch in between.
_SPIN_MICROSECONDS = "20"  # µs
_MAX_ERROR_CHARS = 200  # characters of its errors
_DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]  # 120 µs for 32 rows, where the two nodes that it replaces take 30
_HUGE_PAGE_BYTES = 1 << 21
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # advice of madvise: large pages from now on, and at once
_MAPS = Path("/proc/self/maps")
_HUGE_PAGE_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
AddressRange = tuple[int, int]  # addresses, from the one to before the other


@dataclass(frozen=True)
class OnnxMemory:
    """What the encoder made of the sources, by the names that the step knows it by."""

    tensors: Mapping[str, Tensor]

    @property
    def sentences(self) -> int:
        return self.tensors["mask"].size(0)

    def select(self, sentences: Int[Tensor, " N"]) -> "OnnxMemory":
        return OnnxMemory({name: each.index_select(0, sentences) for name, each in self.tensors.items()})


@dataclass(frozen=True)
class OnnxState:
    """Rows write into one storage, each into its own part, and nothing that is written moves again.

    A step writes in place: of two steps from one state the second takes the place of the first.
    """

    memory: OnnxMemory
    cache: "BoundCache | None" = None  # None before the first step
    order: Int[Tensor, "R C"] | None = None  # which row of its sentence wrote what a row has at a position
    length: int = 0
    log_probs: Float[Tensor, "R V"] | None = None  # of the next tokens, until another step is taken

    def reorder(self, parents: Int[Tensor, " R"]) -> "OnnxState":
        """Each row goes on from another one of its sentence."""
        return self if self.order is None else replace(self, order=self.order.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "OnnxState":
        """These sentences alone, with these rows of theirs."""
        memory = self.memory.select(sentences)
        if self.cache is None:
            return replace(self, memory=memory)
        return replace(self.reorder(rows), memory=memory, cache=self.cache.select(sentences, memory), log_probs=None)


class BoundCache:
    """Keys and values of all layers, [R, H, C, K] each, and where the runtime finds all that a step needs.

    Telling it takes as long as some of the work of a step, so it is told once, as long as nothing moves and no other
    runtime takes the next step.
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
        told = {name: torch.empty(rows, *outputs[name]) for name in _OUTPUT_NAMES if name in outputs}
        self.logits = told["logits"]
        self.log_probs = told["log_probs"][:, 0] if "log_probs" in told else None  # earlier graphs do not tell them
        self._log_probs_numpy = None if self.log_probs is None else self.log_probs.numpy()
        self._outputs = {**{name.replace("past", "present"): each for name, each in caches.items()}, **told}
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
        # Nobody looks at a position before it is written: what lies there now does not matter.
        parts = {
            name: torch.empty(rows, heads, _INITIAL_CAPACITY, width) for name, (_, heads, _, width) in shapes.items()
        }
        return BoundCache(session, memory, parts)

    def set_order(self, order: Int[Tensor, "R C"]) -> None:
        """What the rows have is what others wrote from now on."""
        if order is not self.order:
            self._order[:] = order.numpy()

    def step(self, ids: NDArray[np.int64], length: int, session: "InferenceSession") -> None:
        """Writes position `length`, and what is told of the next tokens."""
        if session is not self._session:
            self._bind(session)
        if self._width > 1:  # otherwise it is 0, as it was
            self._order[:, length] = self._row_in_sentence
        self._ids[:] = ids
        self._position[0] = length
        session.run_with_iobinding(self._binding)

    def log_probs_numpy(self) -> NDArray[np.float32]:
        """The log-probabilities [R, V] for whoever has them from NumPy."""
        return self.logits[:, 0].log_softmax(-1).numpy() if self._log_probs_numpy is None else self._log_probs_numpy

    def grow(self, memory: OnnxMemory) -> "BoundCache":
        """With room for twice as many positions."""
        doubled = {name: torch.cat((each, torch.empty_like(each)), dim=2) for name, each in self._caches.items()}
        return BoundCache(self._session, memory, doubled)

    def select(self, sentences: Int[Tensor, " N"], memory: OnnxMemory) -> "BoundCache":
        """That of these sentences; `memory` is theirs."""
        rows = (sentences[:, None] * self._width + torch.arange(self._width)).flatten()
        return BoundCache(
            self._session, memory, {name: each.index_select(0, rows) for name, each in self._caches.items()}
        )


def _binding_args(tensor: Tensor) -> tuple[str, int, Any, Sequence[int], int]:
    return "cpu", 0, _NUMPY_TYPES[tensor.dtype], tuple(tensor.shape), tensor.data_ptr()


class OnnxNetwork:
    """Graphs as files or as bytes; `config` is that of the network they were made from."""

    def __init__(
        self, encoder: Path | bytes, step: Path | bytes, config: ModelConfig, threads: int | None = None
    ) -> None:
        self.config, self.threads = config, threads or torch.get_num_threads()
        self._graphs = encoder, step
        self._encoder = _open_session(encoder, self.threads)
        with huge_pages():  # its weights are read at every step
            self._step_session = _open_session(step, self.threads)
        self._all_threads_session, self._is_last = self._step_session, lambda: False

    @cached_property
    def single_threaded(self) -> "OnnxNetwork":
        """The same, computed by whichever thread asks: several can at once."""
        return self if self.threads == 1 else OnnxNetwork(*self._graphs, self.config, threads=1)

    def single_threaded_until(self, is_last: Callable[[], bool]) -> "OnnxNetwork":
        """As `single_threaded`, but with every thread from the step on before which it is `is_last`."""
        network = copy(self.single_threaded)
        network._all_threads_session, network._is_last = self._step_session, is_last
        return network

    @property
    def session(self) -> "InferenceSession":
        """What takes the next step."""
        return self._all_threads_session if self._is_last() else self._step_session

    @staticmethod
    def from_network(
        network: Transformer, ranges: "ActivationRanges | None" = None, threads: int | None = None
    ) -> "OnnxNetwork":
        """The same weights, without a file; with `ranges`, in int8."""
        from attendo.interop.onnx.graphs import encoder_graph, step_graph  # need onnx, which nothing else here does

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
        with _explain_errors("encoder.onnx"):
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
        with _explain_errors("step.onnx"):
            return self._one_step(ids, state)

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
        """For many steps from a state on."""
        return OnnxInPlaceStepper(self, state)

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> Any:
        raise UsageError("onnx_fixed_size_unsupported")

    @property
    def max_positions(self) -> float:
        """The most that there can be."""
        return self.config.max_length if self.config.positions == "learned" else math.inf

    def _check(self, ids: Tensor, vocab_size: int, length: int) -> None:
        """What the runtime would say of a wrong id names nothing that a person knows."""
        # As a number without a sign, one below 0 is larger than any vocabulary.
        if ids.numel() and int(ids.numpy().view(np.uint64).max()) >= vocab_size:
            raise UsageError(
                "token_id_outside_vocabulary", token_id=_find_invalid_id(ids), size=vocab_size, last=vocab_size - 1
            )
        if length > self.max_positions:
            raise UsageError("sequence_exceeds_max_length", count=length, max_length=self.config.max_length)


class OnnxInPlaceStepper:
    """Steps of a network from one state on, by NumPy: what torch has to do between two of them takes time of theirs."""

    def __init__(self, network: OnnxNetwork, state: OnnxState) -> None:
        self._network, self._base_state = network, state
        self._length: int = state.length
        self._capacity: float = state.length

    @property
    def state(self) -> OnnxState:
        """Behind the steps that were taken."""
        return replace(self._base_state, length=self._length)

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """One more token of every row [R, 1]: log-probabilities [R, V] of the next, until another step is taken."""
        if self._length < self._capacity:
            with _explain_errors("step.onnx"):
                self._cache.step(ids, self._length, self._network.session)
            self._length += 1
        else:
            self._grow(ids)
        return self._cache.log_probs_numpy()

    def _grow(self, ids: NDArray[np.int64]) -> None:
        """By a step that sees to all that there is to see to."""
        _, self._base_state = self._network.step(torch.from_numpy(ids), self.state)
        assert self._base_state.cache is not None  # it has written there
        self._cache = self._base_state.cache
        self._length = self._base_state.length
        self._capacity = min(self._cache.capacity, self._network.max_positions)


def _find_invalid_id(ids: Tensor) -> int:
    low, high = (int(each) for each in ids.aminmax())
    return low if low < 0 else high


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """What ONNX Runtime says of a graph that does not fit the other files of its folder is a `ModelError`."""
    try:
        yield
    except AttendoError:
        raise
    except Exception as error:  # of a dozen classes that have nothing else in common
        if is_out_of_memory(error):
            raise
        reason = cut_text(" ".join(str(error).split()), _MAX_ERROR_CHARS)
        raise ModelError("onnx_inference_failed", name=name, reason=reason) from None


def _open_session(graph: Path | bytes, threads: int) -> "InferenceSession":
    require_package("onnxruntime", "export", "an ONNX model")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is told by an exception
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_MICROSECONDS)
    try:
        return onnxruntime.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_DISABLED_OPTIMIZERS,
        )
    except Exception as error:  # of a dozen classes that have nothing else in common
        name = "a graph" if isinstance(graph, bytes) else str(graph)
        raise ModelError(
            "onnx_load_failed", name=name, reason=cut_text(" ".join(str(error).split()), _MAX_ERROR_CHARS)
        ) from None


class TokenwiseNetwork:
    """It reads a token of a row at a time."""

    def __init__(self, network: OnnxNetwork) -> None:
        self._network = network

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> OnnxMemory:
        return self._network.encode(source_ids, source_mask)

    def start(self, memory: OnnxMemory) -> OnnxState:
        return self._network.start(memory)

    def step(self, ids: Int[Tensor, "R T"], state: OnnxState) -> tuple[Float[Tensor, "R T V"], OnnxState]:
        columns = []
        for column in ids.split(1, dim=1):
            logits, state = self._network.step(column.contiguous(), state)
            columns.append(logits.clone())  # the next ones are written in their place
        return torch.cat(columns, dim=1), state


@contextmanager
def huge_pages() -> Iterator[None]:
    """Memory that the process comes to hold meanwhile is moved into large pages at the end."""
    before = _anonymous_memory() if _huge_pages_enabled() else []
    yield
    if not before:
        return
    advise = ctypes.CDLL(None).madvise
    for begin, end in huge_page_ranges(new_ranges(_anonymous_memory(), before)):
        for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):  # what is refused changes nothing
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def new_ranges(after: Sequence[AddressRange], before: Sequence[AddressRange]) -> Iterator[AddressRange]:
    """What is in the one and not in the other; both in order."""
    for begin, end in after:
        for known, known_end in before:
            if known < end and begin < known_end:
                if begin < known:
                    yield begin, known
                begin = known_end
        if begin < end:
            yield begin, end


def huge_page_ranges(ranges: Iterator[AddressRange]) -> Iterator[AddressRange]:
    """Of each the large pages that lie in it from end to end."""
    for begin, end in ranges:
        first, last = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES, end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        if first < last:
            yield first, last


def _huge_pages_enabled() -> bool:
    return _HUGE_PAGE_SETTING.is_file() and "[madvise]" in _HUGE_PAGE_SETTING.read_text() and _MAPS.is_file()


def _anonymous_memory() -> list[AddressRange]:
    """Memory that is the process's own and no file's."""
    parts = []
    for line in _MAPS.read_text().splitlines():
        place, rights, _, _, file, *name = line.split()
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]):
            begin, end = place.split("-")
            parts.append((int(begin, 16), int(end, 16)))
    return parts
