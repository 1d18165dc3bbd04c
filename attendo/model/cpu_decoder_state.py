"""The decoder state for the CPU: a KV cache shared by the rows of a sentence, which sentences join and leave."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from attendo.model.decoder_state import DecoderState
from attendo.nn.attention import KeysValues
from attendo.nn.masks import Mask, SlidingWindow
from attendo.nn.positions import NoPositions, Start

_INITIAL_POSITIONS = 32  # initial capacity; doubled when full
_NO_WRITER = -1  # marks a position before the first one of a row
_MIN_DROPPED_POSITIONS = 32  # unused leading positions that justify a copy of the rest


@dataclass(frozen=True)
class SharedKeysValues:
    """The storage of a layer. The rows of a sentence are adjacent at each position."""

    storage: KeysValues
    used: int
    order: Int[Tensor, "R P"]  # of the state, with the new position

    def extend(self, new: KeysValues) -> KeysValues:
        """Write the new keys and values in place."""
        width = new.keys.size(0) // self.storage.keys.size(0)
        columns = slice(self.used, self.used + width)
        for here, there in ((self.storage.keys, new.keys), (self.storage.values, new.values)):
            here[:, :, columns] = there[:, :, 0].unflatten(0, (-1, width)).transpose(1, 2)  # [R, H, K] -> [B, H, W, K]
        return self.storage.map(lambda each: each[:, :, : columns.stop])

    def store(self, new: KeysValues) -> KeysValues:
        return self.extend(new)

    def last_values(self) -> Float[Tensor, "R H Kv"]:
        width = self.order.size(0) // self.storage.values.size(0)
        sentences = torch.arange(self.order.size(0)) // width
        if self.order.size(1) < 2:
            return torch.zeros_like(self.storage.values[sentences, :, 0])
        writers = self.order[:, -2]
        found = self.storage.values[sentences, :, self.used - width + writers.clamp(min=0)]
        return torch.where((writers != _NO_WRITER)[:, None, None], found, 0.0)


@dataclass(frozen=True)
class SharedCacheState:
    """A cache shared by all rows of a sentence. A mask shows each row only its own and its parents' positions.

    Reordering rows copies no vectors. In return, attention computes W times as many query-key products. For a small W
    they cost less than the copies. Sentences may join at any step. One column per step.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    storage: tuple[KeysValues, ...]  # per layer: [B, H, C * W, K]
    width: int
    order: Int[Tensor, "R P"]  # the row of the sentence that wrote each position
    num_positions: int = 0  # used positions of the storage
    first_position: Int[Tensor, " R"] | None = None  # of each row; None: 0 for all, which needs no mask and is faster

    @staticmethod
    def empty(start: DecoderState, width: int) -> "SharedCacheState":
        """Return a cache with the memory and the past of `start`, for `width` rows per sentence."""
        storage = tuple(_allocate(kv, _INITIAL_POSITIONS * width) for kv in start.memory)
        sentences = start.memory[0].keys.size(0)
        order = torch.empty(sentences * width, 0, dtype=torch.long)
        empty = SharedCacheState(start.memory, start.memory_mask, storage, width, order)
        return empty._with_prefix(torch.arange(sentences), start) if start.past else empty

    @property
    def length(self) -> Start:
        return self.num_positions if self.first_position is None else self.num_positions - self.first_position

    def read(self, ids: Int[Tensor, "R 1"], mask: Bool[Tensor, "R 1"] | None) -> tuple["SharedCacheState", Mask]:
        storage, used = self.storage, self.num_positions * self.width
        if used == storage[0].length:
            storage = tuple(kv.extend(_allocate(kv, used)) for kv in storage)
        rows = torch.arange(self.width)
        order = torch.cat((self.order, rows.repeat(ids.size(0) // self.width)[:, None]), dim=1)
        visible = None
        if self.width > 1:
            visible = (order[..., None] == rows).view(-1, 1, self.width, order.size(1) * self.width)  # [B, 1, W, P * W]
        elif self.first_position is not None:
            visible = (order != _NO_WRITER)[:, None, None]
        return replace(self, storage=storage, order=order), Mask(visible)

    def position_biases(self, positions: NoPositions, x: Float[Tensor, "R 1 D"]) -> Float[Tensor, "L 1 H 1 P"] | None:
        """All rows end at the same position of the storage, so that a key has one distance to all of them."""
        biases = positions.biases(x, self.num_positions, self.num_positions + 1)
        return biases if biases is None or self.width == 1 else biases.repeat_interleave(self.width, dim=-1)

    def limit_to_window(self, mask: Mask, window: SlidingWindow, x: Float[Tensor, "R 1 D"]) -> Mask:
        distance = self.num_positions - torch.arange(self.num_positions + 1)
        return window.limit(mask, distance.repeat_interleave(self.width)[None, None])

    def layer_cache(self, layer: int) -> SharedKeysValues:
        return SharedKeysValues(self.storage[layer], self.num_positions * self.width, self.order)

    def with_cache(self, past: Sequence[KeysValues]) -> "SharedCacheState":
        return replace(self, num_positions=self.num_positions + 1)

    def reorder(self, parents: Int[Tensor, " R"]) -> "SharedCacheState":
        """Continue each row from its parent, a row of the same sentence."""
        return replace(self, order=self.order.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "SharedCacheState":
        """Keep only these sentences and rows. Drop leading positions that no row uses."""
        mask, first_position = self.memory_mask, self.first_position
        selected = replace(
            self,
            order=self.order.index_select(0, rows),
            memory=tuple(kv.select(sentences) for kv in self.memory),
            memory_mask=None if mask is None else mask.index_select(0, sentences),
            storage=tuple(kv.select(sentences) for kv in self.storage),
            first_position=None if first_position is None else first_position.index_select(0, rows),
        )
        unused = int(selected.first_position.min()) if selected.first_position is not None and rows.numel() else 0
        return selected._drop_positions(unused) if unused >= _MIN_DROPPED_POSITIONS else selected

    def replace_sentences(
        self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"], start: DecoderState
    ) -> "SharedCacheState":
        """Return a state with new sentences in these slots, overwriting the old ones."""
        here, there = _pad_memories(self, start)
        for old, new in zip(here.memory, there.memory, strict=True):
            old.keys.index_copy_(0, sentences, new.keys)
            old.values.index_copy_(0, sentences, new.values)
        return replace(
            here,
            memory_mask=_memory_mask(here).index_copy(0, sentences, _memory_mask(there)),
            order=here.order.index_fill(0, rows, _NO_WRITER),
            first_position=here._first_positions().index_fill(0, rows, here.num_positions),
        )._with_prefix(sentences, start)

    def append_sentences(self, start: DecoderState) -> "SharedCacheState":
        """Return a state with new sentences appended."""
        here, there = _pad_memories(self, start)
        before, new = here.memory[0].keys.size(0), there.memory[0].keys.size(0)
        order = here.order.new_full((new * here.width, here.order.size(1)), _NO_WRITER)
        first_position = order.new_full((len(order),), here.num_positions)
        return replace(
            here,
            memory=tuple(map(_concat, here.memory, there.memory)),
            memory_mask=torch.cat((_memory_mask(here), _memory_mask(there))),
            # Zeros, because masked values are multiplied by weight 0 and must not be NaN.
            storage=tuple(kv.map(lambda each: pad(each, (0, 0, 0, 0, 0, 0, 0, new))) for kv in here.storage),
            order=torch.cat((here.order, order)),
            first_position=torch.cat((here._first_positions(), first_position)),
        )._with_prefix(torch.arange(before, before + new), start)

    def _with_prefix(self, sentences: Int[Tensor, " N"], start: DecoderState) -> "SharedCacheState":
        """Copy the past of `start` to the positions before the next step. The first row of each sentence owns it."""
        if not start.past:
            return self
        positions, state = start.length, self._reserve_positions(start.length)
        end, width = state.num_positions, state.width
        counts = torch.full_like(sentences, positions) if start.past_mask is None else start.past_mask.sum(dim=1)
        column = torch.arange(positions) - (positions - counts)[:, None]  # [N, T]: source of the last T
        columns = slice((end - positions) * width, end * width, width)
        for here, new in zip(state.storage, start.past, strict=True):
            here.keys[sentences, :, columns] = _gather_columns(new.keys, column)
            here.values[sentences, :, columns] = _gather_columns(new.values, column)
        rows = (sentences[:, None] * width + torch.arange(width)).flatten()
        order = state.order.clone()
        order[rows, end - positions :] = torch.where(column < 0, _NO_WRITER, 0).repeat_interleave(width, dim=0)
        first_position = (end - counts).repeat_interleave(width)
        return replace(state, order=order, first_position=state._first_positions().index_copy(0, rows, first_position))

    def _first_positions(self) -> Int[Tensor, " R"]:
        return self.order.new_zeros(self.order.size(0)) if self.first_position is None else self.first_position

    def _reserve_positions(self, positions: int) -> "SharedCacheState":
        """Insert empty leading positions until there are at least `positions`."""
        more = positions - self.num_positions
        if more <= 0:
            return self
        padding = (0, 0, more * self.width, 0)
        return replace(
            self,
            storage=tuple(kv.map(lambda each: pad(each, padding)) for kv in self.storage),
            order=pad(self.order, (more, 0), value=_NO_WRITER),
            num_positions=positions,
            first_position=self._first_positions() + more,
        )

    def _drop_positions(self, count: int) -> "SharedCacheState":
        """Drop the first `count` positions, which no row uses."""
        columns = count * self.width
        return replace(
            self,
            storage=tuple(kv.map(lambda each: each[:, :, columns:].clone()) for kv in self.storage),
            order=self.order[:, count:],
            num_positions=self.num_positions - count,
            first_position=self._first_positions() - count,
        )


def _allocate(like: KeysValues, positions: int) -> KeysValues:
    """Allocate uninitialised keys and values."""
    return like.map(lambda each: each.new_empty(*each.shape[:2], positions, each.size(3)))


def _gather_columns(kv: Float[Tensor, "N H T K"], column: Int[Tensor, "N T"]) -> Float[Tensor, "N H T K"]:
    """Gather these columns of each sentence. A negative column gives column 0, which is masked."""
    return kv.gather(2, column.clamp(min=0)[:, None, :, None].expand_as(kv))


def _memory_mask(state: SharedCacheState | DecoderState) -> Bool[Tensor, "B S"]:
    if state.memory_mask is not None:
        return state.memory_mask
    keys = state.memory[0].keys
    return torch.ones(keys.size(0), keys.size(2), dtype=torch.bool)


def _pad_memories(here: SharedCacheState, there: DecoderState) -> tuple[SharedCacheState, DecoderState]:
    """Pad both memories to the longer one."""
    width = max(here.memory[0].length, there.memory[0].length)
    return (
        replace(here, memory=_pad_memory(here.memory, width), memory_mask=_pad_mask(_memory_mask(here), width)),
        replace(there, memory=_pad_memory(there.memory, width), memory_mask=_pad_mask(_memory_mask(there), width)),
    )


def _pad_memory(memory: tuple[KeysValues, ...], width: int) -> tuple[KeysValues, ...]:
    more = width - memory[0].length
    return tuple(kv.map(lambda each: pad(each, (0, 0, 0, more))) for kv in memory) if more else memory


def _pad_mask(mask: Bool[Tensor, "B S"], width: int) -> Bool[Tensor, "B W"]:
    return pad(mask, (0, width - mask.size(1)))


def _concat(one: KeysValues, other: KeysValues) -> KeysValues:
    return KeysValues(torch.cat((one.keys, other.keys)), torch.cat((one.values, other.values)))
