"""Decoder states for the CPU: a KV cache shared by the rows of a beam, and one for continuous batching."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from attendo.model.decoder_state import DecoderState
from attendo.nn.attention import KeysValues
from attendo.nn.masks import Mask

_INITIAL_POSITIONS = 32  # positions at first; twice as many whenever they are used up
_NO_WRITER = -1  # wrote what a row has at a position before its first
_MIN_DROPPED_POSITIONS = 32  # positions that nobody looks at any more: so many are worth a copy of the rest


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
class SharedCacheState:
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
    def empty(start: DecoderState, width: int) -> "SharedCacheState":
        """Nothing read yet, the memory that of `start`, for `width` rows a sentence."""
        storage = tuple(_allocate(kv, _INITIAL_POSITIONS * width) for kv in start.memory)
        order = torch.empty(start.memory[0].keys.size(0) * width, 0, dtype=torch.long)
        return SharedCacheState(start.memory, start.memory_mask, storage, width, order)

    def read(self, ids: Int[Tensor, "R 1"], mask: Bool[Tensor, "R 1"] | None) -> tuple["SharedCacheState", Mask]:
        storage, used = self.storage, self.length * self.width
        if used == storage[0].length:
            storage = tuple(kv.extend(_allocate(kv, used)) for kv in storage)
        rows = torch.arange(self.width)
        order = torch.cat((self.order, rows.repeat(ids.size(0) // self.width)[:, None]), dim=1)
        visible = None
        if self.width > 1:
            visible = (order[..., None] == rows).view(-1, 1, self.width, order.size(1) * self.width)  # [B, 1, W, P * W]
        return replace(self, storage=storage, order=order), Mask(visible)

    def layer_cache(self, layer: int) -> SharedKeysValues:
        return SharedKeysValues(self.storage[layer], self.length * self.width)

    def with_cache(self, past: Sequence[KeysValues]) -> "SharedCacheState":
        return replace(self, length=self.length + 1)

    def reorder(self, parents: Int[Tensor, " R"]) -> "SharedCacheState":
        """Each row goes on from another one of its sentence."""
        return replace(self, order=self.order.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "SharedCacheState":
        """These sentences alone, with these rows of theirs."""
        mask = self.memory_mask
        return replace(
            self.reorder(rows),
            memory=tuple(kv.select(sentences) for kv in self.memory),
            memory_mask=None if mask is None else mask.index_select(0, sentences),
            storage=tuple(kv.select(sentences) for kv in self.storage),
        )


def _allocate(like: KeysValues, positions: int) -> KeysValues:
    """Nothing is in it yet."""
    keys, values = (each.new_empty(*each.shape[:2], positions, each.size(3)) for each in (like.keys, like.values))
    return KeysValues(keys, values)


@dataclass(frozen=True)
class ContinuousCacheState:
    """A shared state in which every sentence has a first position of its own. One column a step."""

    shared: SharedCacheState
    first_position: Int[Tensor, " R"]  # the first position of each row

    @staticmethod
    def empty(start: DecoderState, width: int) -> "ContinuousCacheState":
        """The memory of `start` and what it has read, for `width` rows a sentence."""
        shared = SharedCacheState.empty(_ensure_memory_mask(start), width)
        since = torch.zeros(shared.order.size(0), dtype=torch.long)
        return ContinuousCacheState(shared, since)._with_prefix(torch.arange(since.size(0) // width), start)

    @property
    def memory(self) -> tuple[KeysValues, ...]:
        return self.shared.memory

    @property
    def memory_mask(self) -> Bool[Tensor, "B S"] | None:
        return self.shared.memory_mask

    @property
    def length(self) -> Int[Tensor, " R"]:
        return self.shared.length - self.first_position

    def read(self, ids: Int[Tensor, "R 1"], mask: Bool[Tensor, "R 1"] | None) -> tuple["ContinuousCacheState", Mask]:
        shared, visible = self.shared.read(ids, mask)
        if shared.width == 1:
            visible = Mask((shared.order != _NO_WRITER)[:, None, None])
        return replace(self, shared=shared), visible

    def layer_cache(self, layer: int) -> object:
        return self.shared.layer_cache(layer)

    def with_cache(self, past: Sequence[KeysValues]) -> "ContinuousCacheState":
        return replace(self, shared=self.shared.with_cache(past))

    def reorder(self, parents: Int[Tensor, " R"]) -> "ContinuousCacheState":
        """Each row goes on from another one of its sentence."""
        return replace(self, shared=self.shared.reorder(parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "ContinuousCacheState":
        """These sentences alone, with these rows of theirs."""
        kept = ContinuousCacheState(self.shared.select(sentences, rows), self.first_position.index_select(0, rows))
        first = int(kept.first_position.min()) if rows.numel() else 0
        return kept._drop_positions(first) if first >= _MIN_DROPPED_POSITIONS else kept

    def replace_sentences(
        self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"], start: DecoderState
    ) -> "ContinuousCacheState":
        """With new sentences in the place of these, which go on with the next step. What they had is written over."""
        here, there = _pad_memories(self.shared, _ensure_memory_mask(start))
        for old, new in zip(here.memory, there.memory, strict=True):
            old.keys.index_copy_(0, sentences, new.keys)
            old.values.index_copy_(0, sentences, new.values)
        mask = _memory_mask(here).index_copy(0, sentences, _memory_mask(there))
        order = here.order.index_fill(0, rows, _NO_WRITER)
        since = self.first_position.index_fill(0, rows, here.length)
        return ContinuousCacheState(replace(here, memory_mask=mask, order=order), since)._with_prefix(sentences, start)

    def append_sentences(self, start: DecoderState) -> "ContinuousCacheState":
        """With new sentences behind the others, which go on with the next step."""
        here, there = _pad_memories(self.shared, _ensure_memory_mask(start))
        new = there.memory[0].keys.size(0)
        order = here.order.new_full((new * here.width, here.order.size(1)), _NO_WRITER)
        shared = replace(
            here,
            memory=tuple(map(_concat, here.memory, there.memory)),
            memory_mask=torch.cat((_memory_mask(here), _memory_mask(there))),
            # Zeros, because what nobody looks at is multiplied too, and must be a number.
            storage=tuple(_concat(kv, _zeros(kv, new)) for kv in here.storage),
            order=torch.cat((here.order, order)),
        )
        since = torch.cat((self.first_position, self.first_position.new_full((len(order),), here.length)))
        before = here.memory[0].keys.size(0)
        return ContinuousCacheState(shared, since)._with_prefix(torch.arange(before, before + new), start)

    def _with_prefix(self, sentences: Int[Tensor, " N"], start: DecoderState) -> "ContinuousCacheState":
        """What these have read ends where the next step begins. It counts as written by the first row of each."""
        if not start.past:
            return self
        positions, state = start.length, self._reserve_positions(start.length)
        shared, width = state.shared, state.shared.width
        counts = torch.full_like(sentences, positions) if start.past_mask is None else start.past_mask.sum(dim=1)
        column = torch.arange(positions) - (positions - counts)[:, None]  # [N, T]: what comes to the last T positions
        places = slice((shared.length - positions) * width, shared.length * width, width)
        for here, new in zip(shared.storage, start.past, strict=True):
            here.keys[sentences, :, places] = _gather_columns(new.keys, column)
            here.values[sentences, :, places] = _gather_columns(new.values, column)
        rows = (sentences[:, None] * width + torch.arange(width)).flatten()
        wrote = torch.where(column < 0, _NO_WRITER, 0).repeat_interleave(width, dim=0)
        order = shared.order.clone()
        order[rows, shared.length - positions :] = wrote
        since = state.first_position.index_copy(0, rows, (shared.length - counts).repeat_interleave(width))
        return ContinuousCacheState(replace(shared, order=order), since)

    def _reserve_positions(self, positions: int) -> "ContinuousCacheState":
        """So many positions at least before the next step; nobody has anything at those that are new."""
        shared, more = self.shared, positions - self.shared.length
        if more <= 0:
            return self
        places = (0, 0, more * shared.width, 0)
        storage = tuple(KeysValues(pad(kv.keys, places), pad(kv.values, places)) for kv in shared.storage)
        order = pad(shared.order, (more, 0), value=_NO_WRITER)
        shared = replace(shared, storage=storage, order=order, length=positions)
        return ContinuousCacheState(shared, self.first_position + more)

    def _drop_positions(self, count: int) -> "ContinuousCacheState":
        """Nobody has anything at these positions."""
        shared, places = self.shared, count * self.shared.width
        storage = tuple(
            KeysValues(kv.keys[:, :, places:].clone(), kv.values[:, :, places:].clone()) for kv in shared.storage
        )
        shared = replace(shared, storage=storage, order=shared.order[:, count:], length=shared.length - count)
        return ContinuousCacheState(shared, self.first_position - count)


def _ensure_memory_mask(start: DecoderState) -> DecoderState:
    if start.memory_mask is not None:
        return start
    keys = start.memory[0].keys
    return replace(start, memory_mask=torch.ones(keys.size(0), keys.size(2), dtype=torch.bool))


def _gather_columns(kv: Float[Tensor, "N H T K"], column: Int[Tensor, "N T"]) -> Float[Tensor, "N H T K"]:
    """These columns of each sentence; where there is no such column any other, which nobody looks at."""
    return kv.gather(2, column.clamp(min=0)[:, None, :, None].expand_as(kv))


def _memory_mask(state: SharedCacheState | DecoderState) -> Bool[Tensor, "B S"]:
    assert state.memory_mask is not None  # since `_ensure_memory_mask`
    return state.memory_mask


def _pad_memories(here: SharedCacheState, there: DecoderState) -> tuple[SharedCacheState, DecoderState]:
    """Memories with as many positions as the longer of both has."""
    width = max(here.memory[0].length, there.memory[0].length)
    return (
        replace(here, memory=_pad_memory(here.memory, width), memory_mask=_pad_mask(_memory_mask(here), width)),
        replace(there, memory=_pad_memory(there.memory, width), memory_mask=_pad_mask(_memory_mask(there), width)),
    )


def _pad_memory(memory: tuple[KeysValues, ...], width: int) -> tuple[KeysValues, ...]:
    more = width - memory[0].length
    return (
        tuple(KeysValues(pad(kv.keys, (0, 0, 0, more)), pad(kv.values, (0, 0, 0, more))) for kv in memory)
        if more
        else memory
    )


def _pad_mask(mask: Bool[Tensor, "B S"], width: int) -> Bool[Tensor, "B W"]:
    return pad(mask, (0, width - mask.size(1)))


def _concat(one: KeysValues, other: KeysValues) -> KeysValues:
    return KeysValues(torch.cat((one.keys, other.keys)), torch.cat((one.values, other.values)))


def _zeros(like: KeysValues, sentences: int) -> KeysValues:
    keys, values = (each.new_zeros(sentences, *each.shape[1:]) for each in (like.keys, like.values))
    return KeysValues(keys, values)
