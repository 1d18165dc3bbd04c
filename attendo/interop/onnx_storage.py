"""What a network of ONNX Runtime knows of the steps before, and the memory in which it keeps that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_ROOM = 32  # positions at first; twice as many whenever they are used up
_TOLD = ("logits", "log_probs")
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
    log_probs: Float[Tensor, "R V"] | None = None  # of the next tokens, until another step is taken

    def follow(self, parents: Int[Tensor, " R"]) -> "OnnxState":
        """Each row goes on from another one of its sentence."""
        return self if self.order is None else replace(self, order=self.order.index_select(0, parents))

    def keep(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "OnnxState":
        """These sentences alone, with these rows of theirs."""
        memory = self.memory.select(sentences)
        if self.storage is None:
            return replace(self, memory=memory)
        return replace(self.follow(rows), memory=memory, storage=self.storage.keep(sentences, memory), log_probs=None)


class Storage:
    """Keys and values of all layers, [R, H, C, K] each, and where the runtime finds all that a step needs.

    Telling it takes as long as some of the work of a step, so it is told once, as long as nothing moves and no other
    runtime takes the next step.
    """

    def __init__(self, runtime: "InferenceSession", memory: OnnxMemory, parts: Mapping[str, Tensor]) -> None:
        self._parts = parts
        first = next(iter(parts.values()))
        rows, self.capacity = first.size(0), first.size(2)
        self._width = rows // memory.sentences if memory.sentences else 1
        self._own = np.tile(np.arange(self._width), memory.sentences)
        self.order = torch.zeros(rows, self.capacity, dtype=torch.int32)
        ids, position = torch.zeros(rows, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
        self._ids, self._position, self._order = ids.numpy(), position.numpy(), self.order.numpy()
        self._given = {
            "ids": ids,
            "position": position,
            "width": torch.tensor([self._width], dtype=torch.int32),
            "order": self.order.view(-1, self._width, self.capacity),
            **{name: each.contiguous() for name, each in memory.tensors.items()},
            **parts,
        }
        outputs = {each.name: each.shape[1:] for each in runtime.get_outputs()}
        told = {name: torch.empty(rows, *outputs[name]) for name in _TOLD if name in outputs}
        self.logits = told["logits"]
        self.log_probs = told["log_probs"][:, 0] if "log_probs" in told else None  # earlier graphs do not tell them
        self._numbers = None if self.log_probs is None else self.log_probs.numpy()
        self._written = {**{name.replace("past", "present"): each for name, each in parts.items()}, **told}
        self._tell(runtime)

    def _tell(self, runtime: "InferenceSession") -> None:
        self._runtime, self._binding = runtime, runtime.io_binding()
        for name, tensor in self._given.items():
            self._binding.bind_input(name, *_place(tensor))
        for name, tensor in self._written.items():
            self._binding.bind_output(name, *_place(tensor))

    @staticmethod
    def empty(runtime: "InferenceSession", memory: OnnxMemory, rows: int) -> "Storage":
        shapes = {each.name: each.shape for each in runtime.get_inputs() if each.name.startswith("past_")}
        # Nobody looks at a position before it is written: what lies there now does not matter.
        parts = {name: torch.empty(rows, heads, _ROOM, width) for name, (_, heads, _, width) in shapes.items()}
        return Storage(runtime, memory, parts)

    def follow(self, order: Int[Tensor, "R C"]) -> None:
        """What the rows have is what others wrote from now on."""
        if order is not self.order:
            self._order[:] = order.numpy()

    def step(self, ids: NDArray[np.int64], length: int, runtime: "InferenceSession") -> None:
        """Writes position `length`, and what is told of the next tokens."""
        if runtime is not self._runtime:
            self._tell(runtime)
        if self._width > 1:  # otherwise it is 0, as it was
            self._order[:, length] = self._own
        self._ids[:] = ids
        self._position[0] = length
        runtime.run_with_iobinding(self._binding)

    def numbers(self) -> NDArray[np.float32]:
        """The log-probabilities [R, V] for whoever has them from NumPy."""
        return self.logits[:, 0].log_softmax(-1).numpy() if self._numbers is None else self._numbers

    def grown(self, memory: OnnxMemory) -> "Storage":
        """With room for twice as many positions."""
        doubled = {name: torch.cat((each, torch.empty_like(each)), dim=2) for name, each in self._parts.items()}
        return Storage(self._runtime, memory, doubled)

    def keep(self, sentences: Int[Tensor, " N"], memory: OnnxMemory) -> "Storage":
        """That of these sentences; `memory` is theirs."""
        rows = (sentences[:, None] * self._width + torch.arange(self._width)).flatten()
        return Storage(self._runtime, memory, {name: each.index_select(0, rows) for name, each in self._parts.items()})


def _place(tensor: Tensor) -> tuple[str, int, Any, Sequence[int], int]:
    return "cpu", 0, _TYPES[tensor.dtype], tuple(tensor.shape), tensor.data_ptr()
