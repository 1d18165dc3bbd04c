"""Batches of padded token ids with shifted targets, and ragged arrays of sequences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD

_UNCOUNTED = -1


@dataclass(frozen=True, eq=False)
class RaggedArray:
    """Sequences in one flat array. The i-th sequence is `ids[offsets[i] : offsets[i + 1]]`."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> "RaggedArray":
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        offsets = _offsets_from_lengths(lengths)
        return cls(np.fromiter(chain.from_iterable(lists), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def concatenate(cls, arrays: Sequence["RaggedArray"]) -> "RaggedArray":
        """Return the sequences of all arrays, in order."""
        if not arrays:
            return cls.from_lists([])
        ids = np.concatenate([part.ids for part in arrays])
        return cls(ids, _offsets_from_lengths(np.concatenate([part.lengths for part in arrays])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> "RaggedArray":
        """Return the sequences with these row numbers, in this order."""
        lengths = self.lengths[rows]
        offsets = _offsets_from_lengths(lengths)
        # Index of each id of the result in `self.ids`: the start of its sequence plus its position in it.
        positions = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return RaggedArray(self.ids[positions], offsets)

    def slice_rows(self, first: int, last: int) -> "RaggedArray":
        """Return the sequences from `first` up to but not including `last`."""
        begin, end = self.offsets[first], self.offsets[last]
        return RaggedArray(self.ids[begin:end], self.offsets[first : last + 1] - begin)

    def __getitem__(self, row: int) -> list[int]:
        ids: list[int] = self.ids[self.offsets[row] : self.offsets[row + 1]].tolist()
        return ids


def _offsets_from_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class Example:
    """One pair as ids, without special tokens."""

    source: Sequence[int]
    target: Sequence[int]

    @property
    def length(self) -> int:
        """Positions of the longer side in a batch, including one special token."""
        return max(len(self.source), len(self.target)) + 1


@dataclass(frozen=True)
class Batch:
    """A padded batch. The target starts with BOS, and the labels are the next tokens. See `end_source` for EOS.

        source  I love NLP </s>      target  <s> 我 爱 NLP      labels  我 爱 NLP </s>

    Rows are padded on the right. The mask is None if no source row is padded.
    """

    source_ids: Int[Tensor, "B S"]
    source_mask: Bool[Tensor, "B S"] | None
    target_ids: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    numbers: tuple[int, ...] = ()  # indices of the pairs in the training data, if known
    # Counted when the batch is made: counting on a GPU would synchronise.
    tokens: int = _UNCOUNTED  # target tokens to predict: labels that are not padding
    source_tokens: int = _UNCOUNTED
    links: Bool[Tensor, "B T S"] | None = None  # source tokens that a label is aligned with, if the data have links

    def __post_init__(self) -> None:
        if self.tokens == _UNCOUNTED:
            object.__setattr__(self, "tokens", int((self.labels != PAD).sum()))
        if self.source_tokens == _UNCOUNTED:
            mask = self.source_mask
            object.__setattr__(self, "source_tokens", self.source_ids.numel() if mask is None else int(mask.sum()))

    @property
    def positions(self) -> int:
        """Positions of both sides, padding included: the cost of the batch."""
        return self.source_ids.numel() + self.target_ids.numel()

    @property
    def padding(self) -> int:
        """Padding positions of both sides."""
        return self.positions - self.source_tokens - self.tokens

    def with_links(self, links: Bool[Tensor, "B W L"], source_offset: int = 0, target_offset: int = 0) -> "Batch":
        """Return the batch with the links of its tokens, behind this number of prefix tokens per side."""
        _, targets, sources = links.shape
        wide = torch.zeros(*self.labels.shape, self.source_ids.size(1), dtype=torch.bool)
        room = wide[:, target_offset : target_offset + targets, source_offset : source_offset + sources]
        room.copy_(links[:, : room.size(1), : room.size(2)])
        return replace(self, links=wide)

    def to(self, device: torch.device | str) -> "Batch":
        return self._with({name: each.to(device, non_blocking=True) for name, each in self.tensors().items()})

    def pin(self) -> "Batch":
        """Return the batch in pinned memory, which a GPU reads asynchronously."""
        return self._with({name: each.pin_memory() if each.numel() else each for name, each in self.tensors().items()})

    def shard(self, rank: int, world_size: int) -> "Batch":
        """Return every `world_size`-th row, for one of several processes.

        A process without rows gets a row without labels, which adds nothing to a summed loss.
        """
        if world_size == 1:
            return self
        idle = rank >= self.source_ids.size(0)
        rows = slice(1) if idle else slice(rank, None, world_size)
        part = self._with({name: each[rows] for name, each in self.tensors().items()})
        labels = torch.full_like(part.labels, PAD) if idle else part.labels
        links = torch.zeros_like(part.links) if idle and part.links is not None else part.links
        numbers = () if idle else self.numbers[rows]
        return replace(part, labels=labels, links=links, numbers=numbers, tokens=_UNCOUNTED, source_tokens=_UNCOUNTED)

    def repeat(self, times: int) -> "Batch":
        """Return all rows repeated `times` times, for several passes at once."""
        part = self._with({name: each.repeat(times, *[1] * (each.dim() - 1)) for name, each in self.tensors().items()})
        tokens, source_tokens = self.tokens * times, self.source_tokens * times
        return replace(part, numbers=self.numbers * times, tokens=tokens, source_tokens=source_tokens)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name, without those that are None."""
        named = {name: getattr(self, name) for name in ("source_ids", "source_mask", "target_ids", "labels", "links")}
        return {name: each for name, each in named.items() if each is not None}

    def _with(self, tensors: dict[str, Tensor]) -> "Batch":
        return replace(self, **tensors)  # type: ignore[arg-type]


def collate(examples: Sequence[Example]) -> Batch:
    sources, targets = [example.source for example in examples], [example.target for example in examples]
    return collate_sequences(RaggedArray.from_lists(sources), RaggedArray.from_lists(targets))


def collate_sequences(
    source: RaggedArray, target: RaggedArray, numbers: tuple[int, ...] = (), inputs: RaggedArray | None = None
) -> Batch:
    """Pad and batch sources and targets of equal number.

    `inputs` replaces the target as the decoder's input (`InputNoise`). It has the lengths of the target.
    """
    source_ids, source_mask = _pad_sources(source)
    inside = _token_mask(target)
    labels = np.full((len(target), inside.shape[1] + 1), PAD, np.int64)
    labels[:, :-1][inside] = target.ids
    target_ids = np.full_like(labels, PAD)
    target_ids[:, 0] = BOS
    target_ids[:, 1:][inside] = (target if inputs is None else inputs).ids
    labels[np.arange(len(target)), target.lengths] = EOS
    return Batch(
        source_ids=source_ids,
        source_mask=source_mask,
        target_ids=torch.from_numpy(target_ids),
        labels=torch.from_numpy(labels),
        numbers=numbers,
        tokens=len(target.ids) + len(target),
        source_tokens=int(_source_lengths(source).sum()),
    )


def collate_windows(
    windows: RaggedArray,
    numbers: tuple[int, ...] = (),
    first_is_given: bool = False,
    inputs: RaggedArray | None = None,
) -> Batch:
    """Batch windows of language-model text: no source, and no EOS, because a window does not end the text.

        target  <s> T o _ b      labels  T o _ b e

    If `first_is_given`, the first token is not predicted, because it has no context. For `inputs` see
    `collate_sequences`.
    """
    inside = _token_mask(windows)
    labels = np.full(inside.shape, PAD, np.int64)
    labels[inside] = windows.ids
    read = np.full_like(labels, PAD)
    read[inside] = (windows if inputs is None else inputs).ids
    target_ids = np.full_like(labels, PAD)
    target_ids[:, 0] = BOS
    target_ids[:, 1:] = np.where(inside[:, 1:], read[:, :-1], PAD)
    if first_is_given:
        labels[:, 0] = PAD
    return Batch(
        source_ids=torch.zeros(len(windows), 0, dtype=torch.int64),
        source_mask=None,
        target_ids=torch.from_numpy(target_ids),
        labels=torch.from_numpy(labels),
        numbers=numbers,
        tokens=len(windows.ids) - first_is_given * len(windows),
        source_tokens=0,
    )


def collate_sources(sources: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"] | None]:
    """Return ids and padding mask of the source side alone, for generation."""
    return _pad_sources(RaggedArray.from_lists(sources))


def _pad_sources(source: RaggedArray) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"] | None]:
    inside = _token_mask(source)
    lengths, read_lengths = source.lengths, _source_lengths(source)
    ids = np.full((len(source), read_lengths.max()), PAD, np.int64)
    ids[:, : inside.shape[1]][inside] = source.ids
    open_rows = np.flatnonzero(read_lengths > lengths)
    ids[open_rows, lengths[open_rows]] = EOS
    is_token = np.arange(ids.shape[1]) < read_lengths[:, None]
    return torch.from_numpy(ids), None if is_token.all() else torch.from_numpy(is_token)


def _source_lengths(source: RaggedArray) -> NDArray[np.int64]:
    """Return the tokens that the encoder reads of each source. EOS is added as by `end_source`."""
    complete = np.zeros(len(source), np.bool_)
    ends, filled = np.flatnonzero(source.ids == EOS), source.lengths > 0
    complete[filled] = source.ids[source.offsets[:-1][filled]] == BOS
    complete[np.searchsorted(source.offsets, ends, side="right") - 1] = True
    return source.lengths + ~complete


def _token_mask(sequences: RaggedArray) -> NDArray[np.bool_]:
    """Return which positions of the padded rectangle hold an id. Row-major order matches the flat array."""
    if not len(sequences):
        raise UsageError("empty_batch")
    lengths = sequences.lengths
    return np.arange(lengths.max()) < lengths[:, None]
