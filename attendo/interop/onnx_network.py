"""A network that ONNX Runtime computes, for our own search: what a `Transformer` does while it generates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.errors import ModelError, UsageError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer, check_mask

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, IOBinding

    from attendo.interop.onnx_nodes import Ranges

_ROOM = 32  # positions at first; twice as many whenever they are used up
# A thread that waits for work looks for it again and again, for that long. Without it, being woken takes longer than
# small pieces of work; without an end, it takes the time of whoever else computes, such as torch in between.
_WAITING = "20"  # µs
_WORSE = ["SkipLayerNormFusion"]  # 120 µs for 32 rows, where the two nodes that it replaces take 30
_TYPES = {torch.float32: np.float32, torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_}


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
    storage: "Storage | None" = None  # None before the first step
    order: Int[Tensor, "R C"] | None = None  # which row of its sentence wrote what a row has at a position
    length: int = 0

    def follow(self, parents: Int[Tensor, " R"]) -> "OnnxState":
        """Each row goes on from another one of its sentence."""
        return self if self.order is None else replace(self, order=self.order.index_select(0, parents))

    def keep(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "OnnxState":
        """These sentences alone, with these rows of theirs."""
        memory = self.memory.select(sentences)
        if self.storage is None:
            return replace(self, memory=memory)
        return replace(self.follow(rows), memory=memory, storage=self.storage.keep(sentences, memory))


class OnnxNetwork:
    """Graphs as files or as bytes; `config` is that of the network they were made from."""

    def __init__(
        self, encoder: Path | bytes, step: Path | bytes, config: ModelConfig, threads: int | None = None
    ) -> None:
        self.config, self.threads = config, threads or torch.get_num_threads()
        self._graphs = encoder, step
        self._encoder, self._step = (_opened(each, self.threads) for each in self._graphs)

    @cached_property
    def in_one_thread(self) -> "OnnxNetwork":
        """The same, computed by whichever thread asks: several can at once."""
        return self if self.threads == 1 else OnnxNetwork(*self._graphs, self.config, threads=1)

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
        made = self._encoder.run(names, {"source_ids": source_ids.numpy(), "source_mask": mask.numpy()})
        return OnnxMemory({name: torch.from_numpy(each) for name, each in zip(names, made, strict=True)})

    def start(self, memory: OnnxMemory) -> OnnxState:
        """The state before the first step."""
        return OnnxState(memory)

    def step(self, ids: Int[Tensor, "R 1"], state: OnnxState) -> tuple[Float[Tensor, "R 1 V"], OnnxState]:
        """One more token of every row; as many rows side by side as there are more of them belong to a sentence."""
        if ids.size(1) != 1:
            raise UsageError(f"an ONNX network reads one token of a row at a time, not {ids.size(1)}")
        self._check(ids, self.config.target_vocab_size or 0, state.length + 1)
        rows, storage, order = ids.size(0), state.storage, state.order
        if storage is None or order is None:
            storage = Storage.empty(self._step, state.memory, rows)
            order = torch.zeros(rows, storage.capacity, dtype=torch.int32)
        if state.length == storage.capacity:
            storage = storage.grown(state.memory)
            order = torch.nn.functional.pad(order, (0, storage.capacity - order.size(1)))
        logits = storage.step(ids, order, state.length)
        return logits, replace(state, storage=storage, order=storage.order, length=state.length + 1)

    def room(self, sentences: int, source_width: int, width: int, capacity: int) -> Any:
        raise UsageError("an ONNX network makes room by itself, and has none of fixed size: use the engine onnx")

    def _check(self, ids: Tensor, vocab_size: int, length: int) -> None:
        """What the runtime would say of a wrong id names nothing that a person knows."""
        if ids.numel() and not 0 <= (wrong := _outermost(ids, vocab_size)) < vocab_size:
            raise UsageError(
                f"token id {wrong} is outside the vocabulary of {vocab_size} tokens (0 to {vocab_size - 1})"
            )
        if self.config.positions == "learned" and length > self.config.max_length:
            raise UsageError(
                f"a sequence of {length} tokens is longer than the learned positions (max_length "
                f"{self.config.max_length}): shorten or split it, or train with a larger max_length"
            )


class Storage:
    """Keys and values of all layers, [R, H, C, K] each, and where the runtime finds all that a step needs.

    Telling it takes as long as some of the work of a step, so it is told once, as long as nothing moves.
    """

    def __init__(self, runtime: "InferenceSession", memory: OnnxMemory, parts: Mapping[str, Tensor]) -> None:
        self._runtime, self._parts = runtime, parts
        first = next(iter(parts.values()))
        rows, self.capacity = first.size(0), first.size(2)
        self._width = rows // memory.sentences if memory.sentences else 1
        self._own = torch.arange(self._width, dtype=torch.int32).repeat(memory.sentences)
        self._position = torch.zeros(1, dtype=torch.int32)
        self.order = torch.zeros(rows, self.capacity, dtype=torch.int32)
        self._ids = torch.zeros(rows, 1, dtype=torch.int64)
        self._given = {
            "ids": self._ids,
            "position": self._position,
            "width": torch.tensor([self._width], dtype=torch.int32),
            "order": self.order.view(-1, self._width, self.capacity),
            **{name: each.contiguous() for name, each in memory.tensors.items()},
            **parts,
        }
        self._binding: IOBinding = runtime.io_binding()
        for name, tensor in self._given.items():
            self._binding.bind_input(name, *_place(tensor))
        for name, tensor in parts.items():
            self._binding.bind_output(name.replace("past", "present"), *_place(tensor))
        self._tokens: int = next(each.shape[2] for each in runtime.get_outputs() if each.name == "logits")

    @staticmethod
    def empty(runtime: "InferenceSession", memory: OnnxMemory, rows: int) -> "Storage":
        shapes = {each.name: each.shape for each in runtime.get_inputs() if each.name.startswith("past_")}
        parts = {name: torch.zeros(rows, heads, _ROOM, width) for name, (_, heads, _, width) in shapes.items()}
        return Storage(runtime, memory, parts)

    def step(self, ids: Int[Tensor, "R 1"], order: Int[Tensor, "R C"], length: int) -> Float[Tensor, "R 1 V"]:
        """Writes position `length`."""
        logits = torch.empty(ids.size(0), 1, self._tokens)
        if order is not self.order:
            self.order.copy_(order)
        self.order[:, length] = self._own
        self._ids.copy_(ids)
        self._position[0] = length
        self._binding.bind_output("logits", *_place(logits))
        self._runtime.run_with_iobinding(self._binding)
        return logits

    def grown(self, memory: OnnxMemory) -> "Storage":
        """With room for twice as many positions."""
        doubled = {name: torch.cat((each, torch.zeros_like(each)), dim=2) for name, each in self._parts.items()}
        return Storage(self._runtime, memory, doubled)

    def keep(self, sentences: Int[Tensor, " N"], memory: OnnxMemory) -> "Storage":
        """That of these sentences; `memory` is theirs."""
        rows = (sentences[:, None] * self._width + torch.arange(self._width)).flatten()
        return Storage(self._runtime, memory, {name: each.index_select(0, rows) for name, each in self._parts.items()})


def _place(tensor: Tensor) -> tuple[str, int, Any, Sequence[int], int]:
    return "cpu", 0, _TYPES[tensor.dtype], tuple(tensor.shape), tensor.data_ptr()


def _outermost(ids: Tensor, vocab_size: int) -> int:
    low, high = (int(each) for each in ids.aminmax())
    return low if low < 0 else high


def _opened(graph: Path | bytes, threads: int) -> "InferenceSession":
    try:
        import onnxruntime
    except ImportError:
        raise ModelError("onnxruntime is not installed: pip install onnxruntime") from None
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
        raise ModelError(f"{name} cannot be loaded by ONNX Runtime: {' '.join(str(error).split())}") from None
