"""A state for few rows a sentence on a CPU: they write into one storage, and nothing that is written moves again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.model.state import DecoderState
from attendo.nn.attention import KeysValues
from attendo.nn.masks import Mask

_ROOM = 32  # positions at first; twice as many whenever they are used up


@dataclass(frozen=True)
class SharedKeysValues:
    """The storage of a layer; what each row of a sentence has at a position lies side by side."""

    storage: KeysValues
    used: int

    def extend(self, new: KeysValues) -> KeysValues:
        """Written in place."""
        width = new.keys.size(0) // self.storage.keys.size(0)
        places = slice(self.used, self.used + width)
        for here, there in ((self.storage.keys, new.keys), (self.storage.values, new.values)):
            here[:, :, places] = there[:, :, 0].unflatten(0, (-1, width)).transpose(1, 2)  # [R, H, K] -> [B, H, W, K]
        return KeysValues(self.storage.keys[:, :, : places.stop], self.storage.values[:, :, : places.stop])


@dataclass(frozen=True)
class SharedState:
    """All rows of a sentence look at one storage, and a mask shows each of them what it and its parents wrote.

    So rows follow others without a vector being moved, for W times as many products of queries and keys as there would
    be without: as long as W is small, these cost less than the moving. One column a step.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    storage: tuple[KeysValues, ...]  # of each layer: [B, H, C * W, K]
    width: int
    order: Int[Tensor, "R P"]  # which row of its sentence wrote what a row has at a position
    length: int = 0

    @staticmethod
    def empty(start: DecoderState, width: int) -> "SharedState":
        """Nothing read yet, the memory that of `start`, for `width` rows a sentence."""
        storage = tuple(_room(kv, _ROOM * width) for kv in start.memory)
        order = torch.empty(start.memory[0].keys.size(0) * width, 0, dtype=torch.long)
        return SharedState(start.memory, start.memory_mask, storage, width, order)

    def read(self, ids: Int[Tensor, "R 1"], mask: Bool[Tensor, "R 1"] | None) -> tuple["SharedState", Mask]:
        storage, used = self.storage, self.length * self.width
        if used == storage[0].length:
            storage = tuple(kv.extend(_room(kv, used)) for kv in storage)
        rows = torch.arange(self.width)
        order = torch.cat((self.order, rows.repeat(ids.size(0) // self.width)[:, None]), dim=1)
        visible = None
        if self.width > 1:
            visible = (order[..., None] == rows).view(-1, 1, self.width, order.size(1) * self.width)  # [B, 1, W, P * W]
        return replace(self, storage=storage, order=order), Mask(visible)

    def past_of(self, layer: int) -> SharedKeysValues:
        return SharedKeysValues(self.storage[layer], self.length * self.width)

    def after(self, past: Sequence[KeysValues]) -> "SharedState":
        return replace(self, length=self.length + 1)

    def follow(self, parents: Int[Tensor, " R"]) -> "SharedState":
        """Each row goes on from another one of its sentence."""
        return replace(self, order=self.order.index_select(0, parents))

    def keep(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "SharedState":
        """These sentences alone, with these rows of theirs."""
        mask = self.memory_mask
        return replace(
            self.follow(rows),
            memory=tuple(kv.select(sentences) for kv in self.memory),
            memory_mask=None if mask is None else mask.index_select(0, sentences),
            storage=tuple(kv.select(sentences) for kv in self.storage),
        )


def _room(like: KeysValues, positions: int) -> KeysValues:
    """Nothing is in it yet."""
    keys, values = (each.new_empty(*each.shape[:2], positions, each.size(3)) for each in (like.keys, like.values))
    return KeysValues(keys, values)
