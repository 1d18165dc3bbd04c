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

_INITIAL_POSITIONS = 32  # initial capacity; doubled when full
_NO_WRITER = -1  # marks a position before the first one of a row
_MIN_DROPPED_POSITIONS = 32  # unused leading positions that justify a copy of the rest


@dataclass(frozen=True)
class SharedKeysValues:
    """The storage of a layer. The rows of a sentence are adjacent at each position."""

    storage: KeysValues
    used: int

    def extend(self, new: KeysValues) -> KeysValues:
        """Write the new keys and values in place."""
        width = new.keys.size(0) // self.storage.keys.size(0)
        places = slice(self.used, self.used + width)
        for here, there in ((self.storage.keys, new.keys), (self.storage.values, new.values)):
            here[:, :, places] = there[:, :, 0].unflatten(0, (-1, width)).transpose(1, 2)  # [R, H, K] -> [B, H, W, K]
        return KeysValues(self.storage.keys[:, :, : places.stop], self.storage.values[:, :, : places.stop])


@dataclass(frozen=True)
class SharedCacheState:
    """A cache shared by all rows of a sentence. A mask shows each row only its own and its parents' positions.

    Reordering rows copies no vectors. In return, attention computes W times as many query-key products. For a small W
    they cost less than the copies. One column per step.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    storage: tuple[KeysValues, ...]  # per layer: [B, H, C * W, K]
    width: int
    order: Int[Tensor, "R P"]  # the row of the sentence that wrote each position
    length: int = 0

    @staticmethod
    def empty(start: DecoderState, width: int) -> "SharedCacheState":
        """Return an empty cache with the memory of `start`, for `width` rows per sentence."""
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
        """Continue each row from its parent, a row of the same sentence."""
        return replace(self, order=self.order.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "SharedCacheState":
        """Keep only these sentences and rows."""
        mask = self.memory_mask
        return replace(
            self.reorder(rows),
            memory=tuple(kv.select(sentences) for kv in self.memory),
            memory_mask=None if mask is None else mask.index_select(0, sentences),
            storage=tuple(kv.select(sentences) for kv in self.storage),
        )


def _allocate(like: KeysValues, positions: int) -> KeysValues:
    """Allocate uninitialised keys and values."""
    keys, values = (each.new_empty(*each.shape[:2], positions, each.size(3)) for each in (like.keys, like.values))
    return KeysValues(keys, values)


@dataclass(frozen=True)
class ContinuousCacheState:
    """A shared cache in which every sentence has its own first position. One column per step."""

    shared: SharedCacheState
    first_position: Int[Tensor, " R"]

    @staticmethod
    def empty(start: DecoderState, width: int) -> "ContinuousCacheState":
        """Return a cache with the memory and the past of `start`, for `width` rows per sentence."""
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
        """Continue each row from its parent, a row of the same sentence."""
        return replace(self, shared=self.shared.reorder(parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "ContinuousCacheState":
        """Keep only these sentences and rows. Drop leading positions that no row uses."""
        kept = ContinuousCacheState(self.shared.select(sentences, rows), self.first_position.index_select(0, rows))
        first = int(kept.first_position.min()) if rows.numel() else 0
        return kept._drop_positions(first) if first >= _MIN_DROPPED_POSITIONS else kept

    def replace_sentences(
        self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"], start: DecoderState
    ) -> "ContinuousCacheState":
        """Return a state with new sentences in these slots, overwriting the old ones."""
        here, there = _pad_memories(self.shared, _ensure_memory_mask(start))
        for old, new in zip(here.memory, there.memory, strict=True):
            old.keys.index_copy_(0, sentences, new.keys)
            old.values.index_copy_(0, sentences, new.values)
        mask = _memory_mask(here).index_copy(0, sentences, _memory_mask(there))
        order = here.order.index_fill(0, rows, _NO_WRITER)
        since = self.first_position.index_fill(0, rows, here.length)
        return ContinuousCacheState(replace(here, memory_mask=mask, order=order), since)._with_prefix(sentences, start)

    def append_sentences(self, start: DecoderState) -> "ContinuousCacheState":
        """Return a state with new sentences appended."""
        here, there = _pad_memories(self.shared, _ensure_memory_mask(start))
        new = there.memory[0].keys.size(0)
        order = here.order.new_full((new * here.width, here.order.size(1)), _NO_WRITER)
        shared = replace(
            here,
            memory=tuple(map(_concat, here.memory, there.memory)),
            memory_mask=torch.cat((_memory_mask(here), _memory_mask(there))),
            # Zeros, because masked values are multiplied by weight 0 and must not be NaN.
            storage=tuple(_concat(kv, _zeros(kv, new)) for kv in here.storage),
            order=torch.cat((here.order, order)),
        )
        since = torch.cat((self.first_position, self.first_position.new_full((len(order),), here.length)))
        before = here.memory[0].keys.size(0)
        return ContinuousCacheState(shared, since)._with_prefix(torch.arange(before, before + new), start)

    def _with_prefix(self, sentences: Int[Tensor, " N"], start: DecoderState) -> "ContinuousCacheState":
        """Copy the past of `start` to the positions before the next step. The first row of each sentence owns it."""
        if not start.past:
            return self
        positions, state = start.length, self._reserve_positions(start.length)
        shared, width = state.shared, state.shared.width
        counts = torch.full_like(sentences, positions) if start.past_mask is None else start.past_mask.sum(dim=1)
        column = torch.arange(positions) - (positions - counts)[:, None]  # [N, T]: source of the last T
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
        """Insert empty leading positions until there are at least `positions`."""
        shared, more = self.shared, positions - self.shared.length
        if more <= 0:
            return self
        places = (0, 0, more * shared.width, 0)
        storage = tuple(KeysValues(pad(kv.keys, places), pad(kv.values, places)) for kv in shared.storage)
        order = pad(shared.order, (more, 0), value=_NO_WRITER)
        shared = replace(shared, storage=storage, order=order, length=positions)
        return ContinuousCacheState(shared, self.first_position + more)

    def _drop_positions(self, count: int) -> "ContinuousCacheState":
        """Drop the first `count` positions, which no row uses."""
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
    """Gather these columns of each sentence. A negative column gives column 0, which is masked."""
    return kv.gather(2, column.clamp(min=0)[:, None, :, None].expand_as(kv))


def _memory_mask(state: SharedCacheState | DecoderState) -> Bool[Tensor, "B S"]:
    assert state.memory_mask is not None  # `_ensure_memory_mask` sets it
    return state.memory_mask


def _pad_memories(here: SharedCacheState, there: DecoderState) -> tuple[SharedCacheState, DecoderState]:
    """Pad both memories to the longer one."""
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
