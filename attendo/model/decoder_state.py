"""What a decoder knows of the steps before: grown by one column a step, or kept in place where shapes must not change.

Rows of one sentence (a beam, several samples) stand side by side and share the sentence's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.nn import single_query_attention
from attendo.nn.attention import KeysValues, KVCache, StaticKeysValues
from attendo.nn.masks import Mask, causal_mask
from attendo.nn.positions import Start


@dataclass(frozen=True)
class Memory:
    """What the encoder made of the source: one vector a token, and which of them are tokens and not padding."""

    states: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B S"] | None


@runtime_checkable
class CacheState(Protocol):
    """All that a step asks of a state."""

    @property
    def memory(self) -> tuple[KeysValues, ...]:
        """Of each layer, projected once per sentence; of no positions, or none at all, in a decoder-only network."""

    @property
    def memory_mask(self) -> Bool[Tensor, "B S"] | None: ...

    @property
    def length(self) -> Start:
        """How many target positions have been read."""

    def read(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> tuple[Self, Mask]:
        """The state that new columns are about to join, and what their queries may look at."""

    def layer_cache(self, layer: int) -> KVCache | None:
        """What the new keys and values of a layer join; None before the first step."""

    def with_cache(self, past: Sequence[KeysValues]) -> Self:
        """The state with the new columns; `past` are all keys and values of each layer."""


@dataclass(frozen=True)
class DecoderState:
    """Keys and values that grow by concatenation."""

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    past: tuple[KeysValues, ...] = ()  # of each layer; empty before the first step
    past_mask: Bool[Tensor, "R T"] | None = None

    @property
    def length(self) -> int:
        return self.past[0].length if self.past else 0

    def read(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> tuple["DecoderState", Mask]:
        past_mask = self._extend_mask(ids, mask)
        return replace(self, past_mask=past_mask), causal_mask(self.length, ids.size(1), past_mask, ids.device)

    def layer_cache(self, layer: int) -> KeysValues | None:
        return self.past[layer] if self.past else None

    def with_cache(self, past: Sequence[KeysValues]) -> "DecoderState":
        return replace(self, past=tuple(past))

    def with_past_mask(self, is_token: Bool[Tensor, "R T"]) -> "DecoderState":
        """Of all that has been read, these positions count; in each row they come before the others."""
        return replace(self, past_mask=is_token)

    def select_rows(self, rows: Int[Tensor, " R"]) -> "DecoderState":
        """The state of these rows, where each row has a memory of its own."""
        return self.select(rows, rows)

    def reorder(self, parents: Int[Tensor, " R"]) -> "DecoderState":
        """Each row goes on from another one of its sentence."""
        past_mask = None if self.past_mask is None else self.past_mask.index_select(0, parents)
        return replace(self, past=tuple(kv.select(parents) for kv in self.past), past_mask=past_mask)

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "DecoderState":
        """These sentences alone, with these rows of theirs."""
        mask = self.memory_mask
        return replace(
            self.reorder(rows),
            memory=tuple(kv.select(sentences) for kv in self.memory),
            memory_mask=None if mask is None else mask.index_select(0, sentences),
        )

    def _extend_mask(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> Bool[Tensor, "R P"] | None:
        """Which target positions, old and new, hold tokens; None while no padding has been spoken of."""
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
    """As many positions as were made room for, every row at a place of its own. One column a step."""

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "B S"] | None
    storage: tuple[KeysValues, ...]  # of each layer, all positions
    length: Int[Tensor, " R"]
    order: Int[Tensor, "R C"] | None  # None where rows never follow others

    @staticmethod
    def empty(start: DecoderState, storage: Sequence[KeysValues], reorderable: bool) -> "StaticCacheState":
        """Nothing read yet, the memory that of `start`. `reorderable`: rows may go on from others of their sentence."""
        rows, capacity = storage[0].keys.size(0), storage[0].length
        device = storage[0].keys.device
        order = torch.arange(rows, device=device)[:, None].repeat(1, capacity) if reorderable else None
        length = torch.zeros(rows, dtype=torch.long, device=device)
        return StaticCacheState(start.memory, start.memory_mask, tuple(storage), length, order)

    def read(self, ids: Int[Tensor, "R T"], mask: Bool[Tensor, "R T"] | None) -> tuple["StaticCacheState", Mask]:
        places = torch.arange(self.storage[0].length, device=ids.device)
        return self, Mask((places <= self.length[:, None])[:, None, None])

    def layer_cache(self, layer: int) -> StaticKeysValues:
        return StaticKeysValues(self.storage[layer], self.length, self.order)

    def with_cache(self, past: Sequence[KeysValues]) -> "StaticCacheState":
        return replace(self, length=self.length + 1)

    def reorder(self, parents: Int[Tensor, " R"]) -> "StaticCacheState":
        """Each row goes on from another one of its sentence; what comes next is written in the row's own storage."""
        assert self.order is not None  # asked for when the state was made
        rows = torch.arange(parents.size(0), device=parents.device)
        places = torch.arange(self.order.size(1), device=parents.device)
        past = places < self.length[:, None]
        return replace(self, order=torch.where(past, self.order.index_select(0, parents), rows[:, None]))

    def insert(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " M"], start: DecoderState) -> None:
        """New sentences where others were, in place: their memory, and what of their targets has been read."""
        for here, new in zip(self.memory, start.memory, strict=True):
            here.keys.index_copy_(0, sentences, new.keys)
            here.values.index_copy_(0, sentences, new.values)
        if self.memory_mask is not None and start.memory_mask is not None:
            self.memory_mask.index_copy_(0, sentences, start.memory_mask)
        self.length.index_fill_(0, rows, start.length)
        if self.order is not None:
            self.order.index_copy_(0, rows, rows[:, None].expand(-1, self.order.size(1)))
        if not single_query_attention.is_supported(
            self.storage[0].keys[:, :, :1]
        ):  # which looks at nothing behind the tokens of a row
            self._clear_rows(rows)
        if start.past:
            self._copy_past(rows, start.reorder(_sentence_indices(sentences.size(0), rows)))

    def _clear_rows(self, rows: Int[Tensor, " M"]) -> None:
        """What a row may not look at has weight 0, but 0 times what is no number is no number either."""
        for here in self.storage:
            here.keys.index_fill_(0, rows, 0.0)
            here.values.index_fill_(0, rows, 0.0)

    def _copy_past(self, rows: Int[Tensor, " M"], start: DecoderState) -> None:
        """What lies behind the tokens of a row is written over before anybody looks at it."""
        for here, new in zip(self.storage, start.past, strict=True):
            here.keys[:, :, : new.length].index_copy_(0, rows, new.keys)
            here.values[:, :, : new.length].index_copy_(0, rows, new.values)
        if start.past_mask is not None:
            self.length.index_copy_(0, rows, start.past_mask.sum(dim=1))

    def write(self, after: "StaticCacheState", rows: Bool[Tensor, " R"]) -> None:
        """What a step came to, in place, where the next one reads; `rows` are those that it counts for."""
        self.length.copy_(torch.where(rows, after.length, self.length))
        if self.order is not None and after.order is not None:
            self.order.copy_(after.order)


def _sentence_indices(sentences: int, rows: Int[Tensor, " M"]) -> Int[Tensor, " M"]:
    """The number of the sentence that each of these rows belongs to, as many to each."""
    return torch.arange(sentences, device=rows.device).repeat_interleave(rows.size(0) // sentences)
