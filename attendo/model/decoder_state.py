"""Decoder states: the KV cache of earlier steps, growing by one column per step or with a static shape.

The rows of a sentence (a beam, several samples) are adjacent and share the sentence's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.nn import single_query_attention
from attendo.nn.attention import KeysValues, KVCache, StaticKeysValues
from attendo.nn.masks import Mask, SlidingWindow, causal_mask
from attendo.nn.positions import NoPositions, Start


@dataclass(frozen=True)
class Memory:
    """The encoder's output: one vector per token, and a mask that is True at tokens and False at padding."""

    states: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B S"] | None

    def select(self, sentences: Int[Tensor, " N"]) -> "Memory":
        """Keep only these sentences."""
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        return Memory(self.states.index_select(0, sentences), mask)


@runtime_checkable
class CacheState(Protocol):
    """The interface of a decoder state."""

    @property
    def memory(self) -> tuple[KeysValues, ...]:
        """The memory's keys and values for each layer, projected once per sentence.

        A language model has an empty tuple, or keys and values without positions.
        """

    @property
    def memory_mask(self) -> Bool[Tensor, "B S"] | None: ...

    @property
    def length(self) -> Start:
        """Number of target positions read so far."""

    def read(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> tuple[Self, Mask]:
        """Prepare for new columns. Return the state and the mask of their queries."""

    def position_biases(self, positions: NoPositions, x: Float[Tensor, "R T D"]) -> Float[Tensor, "L #B H T P"] | None:
        """Return what positions add to the scores of new columns. The keys are those of `read`."""

    def limit_to_window(self, mask: Mask, window: SlidingWindow, x: Float[Tensor, "R T D"]) -> Mask:
        """Return the mask of `read` without the keys that a sliding window hides from new columns."""

    def layer_cache(self, layer: int) -> KVCache | None:
        """Return the cache of a layer, or None before the first step."""

    def with_cache(self, past: Sequence[KeysValues]) -> Self:
        """Return the state after the new columns. `past` has all keys and values of each layer."""


@dataclass(frozen=True)
class DecoderState:
    """A KV cache that grows by concatenation."""

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    past: tuple[KeysValues, ...] = ()  # per layer; empty before the first step
    past_mask: Bool[Tensor, "R T"] | None = None

    @property
    def length(self) -> int:
        return self.past[0].length if self.past else 0

    def read(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> tuple["DecoderState", Mask]:
        past_mask = self._extend_mask(ids, mask)
        return replace(self, past_mask=past_mask), causal_mask(self.length, ids.size(1), past_mask, ids.device)

    def position_biases(self, positions: NoPositions, x: Float[Tensor, "R T D"]) -> Float[Tensor, "L 1 H T P"] | None:
        return positions.biases(x, self.length, self.length + x.size(1))

    def limit_to_window(self, mask: Mask, window: SlidingWindow, x: Float[Tensor, "R T D"]) -> Mask:
        position = torch.arange(self.length + x.size(1), device=x.device)
        return window.limit(mask, (position[self.length :, None] - position)[None])

    def layer_cache(self, layer: int) -> KeysValues | None:
        return self.past[layer] if self.past else None

    def with_cache(self, past: Sequence[KeysValues]) -> "DecoderState":
        return replace(self, past=tuple(past))

    def with_past_mask(self, is_token: Bool[Tensor, "R T"]) -> "DecoderState":
        """Return the state with this mask for the positions read so far. In each row, tokens must precede padding."""
        return replace(self, past_mask=is_token)

    def truncate(self, length: int) -> "DecoderState":
        """Return the state after the first `length` positions."""
        past = tuple(kv.map(lambda each: each[:, :, :length]) for kv in self.past) if length else ()
        return replace(self, past=past, past_mask=None if self.past_mask is None else self.past_mask[:, :length])

    def reorder(self, parents: Int[Tensor, " R"]) -> "DecoderState":
        """Continue each row from its parent, a row of the same sentence."""
        past_mask = None if self.past_mask is None else self.past_mask.index_select(0, parents)
        return replace(self, past=tuple(kv.select(parents) for kv in self.past), past_mask=past_mask)

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "DecoderState":
        """Keep only these sentences and rows."""
        mask = self.memory_mask
        return replace(
            self.reorder(rows),
            memory=tuple(kv.select(sentences) for kv in self.memory),
            memory_mask=None if mask is None else mask.index_select(0, sentences),
        )

    def _extend_mask(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> Bool[Tensor, "R P"] | None:
        """Return which old and new target positions hold tokens, or None if there is no padding mask."""
        if mask is None and self.past_mask is None:
            return None
        before, new = self.past_mask, mask
        if before is None:
            before = ids.new_ones(ids.size(0), self.length, dtype=torch.bool)
        if new is None:
            new = torch.ones_like(ids, dtype=torch.bool)
        return torch.cat((before, new), dim=1)


@dataclass(frozen=True)
class StaticCacheState:
    """A preallocated KV cache with a separate length for each row. One column per step."""

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    storage: tuple[KeysValues, ...]  # per layer, all positions
    length: Int[Tensor, " R"]
    order: Int[Tensor, "R C"] | None  # None if rows are never reordered
    reads_unused: bool = False  # whether attention also reads unused positions, which are then cleared, on every device

    @staticmethod
    def empty(start: DecoderState, storage: Sequence[KeysValues], reorderable: bool) -> "StaticCacheState":
        """Return an empty cache with the memory of `start`. Rows can be reordered only if `reorderable` is True."""
        rows, capacity = storage[0].keys.size(0), storage[0].length
        device = storage[0].keys.device
        order = torch.arange(rows, device=device)[:, None].repeat(1, capacity) if reorderable else None
        length = torch.zeros(rows, dtype=torch.long, device=device)
        return StaticCacheState(start.memory, start.memory_mask, tuple(storage), length, order)

    def read(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> tuple["StaticCacheState", Mask]:
        positions = torch.arange(self.storage[0].length, device=ids.device)
        return self, Mask((positions <= self.length[:, None])[:, None, None])

    def position_biases(self, positions: NoPositions, x: Float[Tensor, "R 1 D"]) -> Float[Tensor, "L R H 1 C"] | None:
        return positions.biases(x, self.length, self.storage[0].length)

    def limit_to_window(self, mask: Mask, window: SlidingWindow, x: Float[Tensor, "R 1 D"]) -> Mask:
        """Return the mask as numbers too, because the kernel for one query reads only these."""
        position = torch.arange(self.storage[0].length, device=x.device)
        limited = window.limit(mask, self.length[:, None, None] - position)
        if limited is mask or limited.visible is None:
            return mask
        return limited.with_bias(torch.zeros_like(limited.visible, dtype=self.storage[0].keys.dtype))

    def layer_cache(self, layer: int) -> StaticKeysValues:
        return StaticKeysValues(self.storage[layer], self.length, self.order)

    def with_cache(self, past: Sequence[KeysValues]) -> "StaticCacheState":
        return replace(self, length=self.length + 1)

    def reorder(self, parents: Int[Tensor, " R"]) -> "StaticCacheState":
        """Continue each row from its parent, a row of the same sentence. New columns go to the row's own storage."""
        assert self.order is not None  # the state was created with reorderable=True
        rows = torch.arange(parents.size(0), device=parents.device)
        positions = torch.arange(self.order.size(1), device=parents.device)
        past = positions < self.length[:, None]
        return replace(self, order=torch.where(past, self.order.index_select(0, parents), rows[:, None]))

    def insert(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " M"], start: DecoderState) -> None:
        """Put new sentences into these slots in place: their memory, and the target positions already read."""
        for here, new in zip(self.memory, start.memory, strict=True):
            here.keys.index_copy_(0, sentences, new.keys)
            here.values.index_copy_(0, sentences, new.values)
        if self.memory_mask is not None and start.memory_mask is not None:
            self.memory_mask.index_copy_(0, sentences, start.memory_mask)
        self.length.index_fill_(0, rows, start.length)
        if self.order is not None:
            self.order.index_copy_(0, rows, rows[:, None].expand(-1, self.order.size(1)))
        # The kernel for one query reads only the tokens of a row.
        if self.reads_unused or not single_query_attention.is_supported(self.storage[0].keys[:, :, :1]):
            self._clear_rows(rows)
        if start.past:
            self._copy_past(rows, start.reorder(_sentence_indices(sentences.size(0), rows)))

    def _clear_rows(self, rows: Int[Tensor, " M"]) -> None:
        """Clear old values: masked positions have weight 0, but 0 × NaN is NaN."""
        for here in self.storage:
            here.keys.index_fill_(0, rows, 0.0)
            here.values.index_fill_(0, rows, 0.0)

    def _copy_past(self, rows: Int[Tensor, " M"], start: DecoderState) -> None:
        """Copy the past of `start`. Padding after the tokens of a row is overwritten before it is read."""
        for here, new in zip(self.storage, start.past, strict=True):
            here.keys[:, :, : new.length].index_copy_(0, rows, new.keys)
            here.values[:, :, : new.length].index_copy_(0, rows, new.values)
        if start.past_mask is not None:
            self.length.index_copy_(0, rows, start.past_mask.sum(dim=1))

    def write(self, after: "StaticCacheState", rows: Bool[Tensor, " R"]) -> None:
        """Copy the state after a step into this one in place. Only `rows` advance."""
        self.length.copy_(torch.where(rows, after.length, self.length))
        if self.order is not None and after.order is not None:
            self.order.copy_(after.order)


def _sentence_indices(sentences: int, rows: Int[Tensor, " M"]) -> Int[Tensor, " M"]:
    """Return the sentence index of each row, with the same number of rows for each sentence."""
    return torch.arange(sentences, device=rows.device).repeat_interleave(rows.size(0) // sentences)
