"""Resumable sampler: shuffle buffers and batches whose order depends on seed and position.

Reads are contiguous within a block. Memory holds one or two buffers. A corpus that fits in one is fully shuffled.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attendo import keyed_random
from attendo.data.batch import Batch, RaggedArray, collate_sequences, collate_windows
from attendo.data.bucketing import make_batches
from attendo.data.input_noise import InputNoise
from attendo.data.prepared import PreparedCorpus, PreparedData
from attendo.data.token_links import TokenLinker
from attendo.errors import DataError, UsageError
from attendo.text import SentencePiece, Tokenizer
from attendo.text.bpe_dropout import BPEDropout

BLOCK_PAIRS = 256
BUFFER_PAIRS = 65_536
BUFFER_TOKENS = 16_000_000  # long sentences reduce the pairs per buffer
RESEGMENT_SENTENCES = 32_768  # sentences; takes less than a second
# A copy of a block: its corpus, its range of pairs, the index of the copy, and the share of its pairs to use.
BLOCK_DTYPE = np.dtype([("corpus", "i8"), ("first", "i8"), ("last", "i8"), ("copy", "i8"), ("share", "f8")])
Blocks = NDArray[Any]
# Splits sentences, given as ids and offsets, into other token pieces (`BPEDropout`). The keys are of each sentence and
# of the round.
Resegmenter = Callable[
    [NDArray[np.int32], NDArray[np.int64], keyed_random.Keys, keyed_random.Keys],
    tuple[NDArray[np.int32], NDArray[np.int64]],
]
BATCHES_AHEAD = 4  # batches made in advance per worker


@dataclass(frozen=True)
class BufferPosition:
    """One shuffle buffer of one epoch, and the blocks to read for it."""

    epoch: int
    pool: int
    blocks: Blocks


@dataclass(frozen=True, eq=False)
class ShuffleBuffer:
    """Pairs in memory, and the rows of each batch."""

    source: RaggedArray
    target: RaggedArray
    numbers: NDArray[np.int64]  # indices of the pairs in the training data, over all corpora
    batch_rows: list[NDArray[np.int64]]
    windows: bool = False  # the target holds windows of language-model text
    noise: InputNoise | None = None  # of the decoder's input
    links: RaggedArray | None = None  # links of words, if the data have some
    linker: TokenLinker | None = None

    def batch(self, number: int) -> Batch:
        rows = self.batch_rows[number]
        target, numbers = self.target.take(rows), tuple(self.numbers[rows].tolist())
        inputs = None if self.noise is None else self.noise.apply(target, rows)
        if self.windows:
            return collate_windows(target, numbers, inputs=inputs)
        source = self.source.take(rows)
        batch = collate_sequences(source, target, numbers, inputs)
        if self.links is None or self.linker is None:
            return batch
        return batch.with_links(self.linker.link(source, target, self.links.take(rows)))


def epoch_buffers(corpora: Sequence[PreparedCorpus], seed: int, epoch: int) -> list[BufferPosition]:
    """Return all buffers of an epoch. With weight 2.3 each pair occurs twice, and once more with probability 0.3."""
    blocks = np.concatenate(
        [np.zeros(0, BLOCK_DTYPE), *(_make_blocks(number, corpus) for number, corpus in enumerate(corpora))]
    )
    blocks = blocks[keyed_random.permutation(len(blocks), seed, "blocks", epoch)]
    pairs = (blocks["last"] - blocks["first"]) * blocks["share"]
    tokens_a_pair = np.array([corpus.tokens / max(1, len(corpus.shards)) for corpus in corpora])
    share_of_pool = pairs * np.maximum(1 / BUFFER_PAIRS, tokens_a_pair[blocks["corpus"]] / BUFFER_TOKENS)
    before = np.concatenate([[0.0], np.cumsum(share_of_pool)])[:-1]
    starts = np.flatnonzero(np.diff(before.astype(np.int64))) + 1
    return [BufferPosition(epoch, pool, part) for pool, part in enumerate(np.split(blocks, starts)) if len(part)]


class BufferReader:
    """Reads shuffle buffers. Their content depends only on the data, the seed and the position."""

    def __init__(
        self,
        prepared: PreparedData,
        batch_tokens: int,
        seed: int,
        resegmenters: tuple[Resegmenter, Resegmenter] | None = None,
        sort_within: int = BUFFER_PAIRS,
        input_noise: float = 0.0,
    ) -> None:
        self._prepared, self._batch_tokens, self._seed, self._resegmenters = prepared, batch_tokens, seed, resegmenters
        self._input_noise = input_noise
        self._sort_within = sort_within if sort_within < BUFFER_PAIRS else None  # a buffer may hold slightly more pairs
        sizes = [len(corpus.shards) for corpus in prepared.corpora]
        self._first_numbers = np.cumsum([0, *sizes])
        self._linker = None
        if prepared.has_links:
            self._linker = TokenLinker.of(prepared.source_tokenizer, prepared.target_tokenizer)

    def read(self, position: BufferPosition, is_stopped: Callable[[], bool] = lambda: False) -> ShuffleBuffer:
        """Read one buffer. It polls `is_stopped` and raises `CancelledError` if that returns True."""
        source, target, numbers, copies, links = self._read_pairs(position)
        pairs = (position.epoch, numbers.astype(np.uint64), copies.astype(np.uint64))
        if self._resegmenters is not None:
            about = (self._seed, "dropout", *pairs)
            of_round = keyed_random.make_keys(self._seed, "round", position.epoch)
            source = self._resegment(
                source, self._resegmenters[0], keyed_random.make_keys(*about, "source"), of_round, is_stopped
            )
            target = self._resegment(
                target, self._resegmenters[1], keyed_random.make_keys(*about, "target"), of_round, is_stopped
            )
        windows = self._prepared.window is not None
        control = 0 if windows else 1  # special tokens per side
        groups = make_batches(source.lengths + control, target.lengths + control, self._batch_tokens, self._sort_within)
        order = keyed_random.permutation(len(groups), self._seed, "batches", position.epoch, position.pool)
        noise = None
        if self._input_noise:
            keys = keyed_random.make_keys(self._seed, "input noise", *pairs)
            noise = InputNoise(self._input_noise, keys, target.ids)
        batch_rows = [groups[number] for number in order]
        return ShuffleBuffer(source, target, numbers, batch_rows, windows, noise, links, self._linker)

    def _read_pairs(
        self, position: BufferPosition
    ) -> tuple[RaggedArray, RaggedArray, NDArray[np.int64], NDArray[np.int64], RaggedArray | None]:
        """Return both sides, pair numbers, copy indices and links of words, in random order."""
        blocks, corpora = position.blocks, self._prepared.corpora
        parts = [corpora[block["corpus"]].shards.read(int(block["first"]), int(block["last"])) for block in blocks]
        sizes = blocks["last"] - blocks["first"]
        begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
        first_numbers = np.repeat(self._first_numbers[blocks["corpus"]] + blocks["first"], sizes)
        numbers = first_numbers + np.arange(len(begins)) - begins
        drawn = keyed_random.uniform(
            keyed_random.make_keys(self._seed, "copies", position.epoch, numbers.astype(np.uint64))
        )
        chosen = np.flatnonzero(drawn < np.repeat(blocks["share"], sizes))
        rows = chosen[keyed_random.permutation(len(chosen), self._seed, "pairs", position.epoch, position.pool)]
        return (
            RaggedArray.concatenate([source for source, _ in parts]).take(rows),
            RaggedArray.concatenate([target for _, target in parts]).take(rows),
            numbers[rows],
            np.repeat(blocks["copy"], sizes)[rows],
            None if self._linker is None else self._read_links(blocks).take(rows),
        )

    def _read_links(self, blocks: Blocks) -> RaggedArray:
        """Return the links of words of each pair. Pairs of a corpus without alignments have none."""
        parts = []
        for block in blocks:
            links, first, last = self._prepared.corpora[block["corpus"]].links, int(block["first"]), int(block["last"])
            none = RaggedArray.from_lists([()] * (last - first))
            parts.append(none if links is None else links.read(first, last)[0])
        return RaggedArray.concatenate(parts)

    def _resegment(
        self,
        sequences: RaggedArray,
        resegmenter: Resegmenter,
        keys: keyed_random.Keys,
        round_key: keyed_random.Keys,
        is_stopped: Callable[[], bool],
    ) -> RaggedArray:
        """Return the sentences split differently, except those that would exceed the maximum length."""
        parts = []
        for first in range(0, len(sequences), RESEGMENT_SENTENCES):
            if is_stopped():
                raise CancelledError
            part = sequences.slice_rows(first, min(first + RESEGMENT_SENTENCES, len(sequences)))
            parts.append(
                RaggedArray(*resegmenter(part.ids, part.offsets, keys[first : first + RESEGMENT_SENTENCES], round_key))
            )
        other = RaggedArray.concatenate(parts)
        too_long = other.lengths > self._prepared.max_length
        if not too_long.any():
            return other
        rows = np.arange(len(sequences)) + np.where(too_long, len(sequences), 0)
        return RaggedArray.concatenate([other, sequences]).take(rows)


def _make_blocks(number: int, corpus: PreparedCorpus) -> Blocks:
    pairs, copies = len(corpus.shards), int(corpus.weight)
    first = np.arange(0, pairs, BLOCK_PAIRS)
    shares = [1.0] * copies + ([corpus.weight - copies] if corpus.weight > copies else [])
    blocks = np.zeros((len(shares), len(first)), BLOCK_DTYPE)
    blocks["corpus"], blocks["first"], blocks["last"] = number, first, np.minimum(first + BLOCK_PAIRS, pairs)
    blocks["copy"] = np.arange(len(shares))[:, None]
    blocks["share"] = np.array(shares)[:, None]
    return blocks.reshape(-1)


@dataclass(frozen=True)
class Position:
    """Position of the next batch. `pool` is the index of the shuffle buffer."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


START_POSITION = Position()


@dataclass(frozen=True)
class BatchWithPosition:
    """A batch and the position after it."""

    batch: Batch
    next_position: Position


@dataclass(frozen=True)
class _BatchJob:
    buffer: ShuffleBuffer
    batch: int
    next_position: Position


class BatchStream:
    """Training batches, epoch after epoch. The order is stateless: a position is enough to resume."""

    def __init__(
        self,
        prepared: PreparedData,
        batch_tokens: int,
        seed: int,
        dropout: float = 0.0,
        sort_within: int = BUFFER_PAIRS,
        input_noise: float = 0.0,
    ) -> None:
        """`dropout` is the rate of BPE-dropout, `input_noise` that of `InputNoise`.

        For `sort_within` see `make_batches`.
        """
        resegmenters = None
        if dropout:
            source = _make_merge_dropout(prepared.source_tokenizer, dropout)
            joint = prepared.target_tokenizer is prepared.source_tokenizer
            resegmenters = (source, source if joint else _make_merge_dropout(prepared.target_tokenizer, dropout))
        self._corpora, self._seed = prepared.corpora, seed
        self._folder = prepared.folder
        self._reader = BufferReader(prepared, batch_tokens, seed, resegmenters, sort_within, input_noise)

    def batches(
        self, position: Position = START_POSITION, workers: int = 0, pin: bool = False
    ) -> Generator[BatchWithPosition, None, None]:
        """Yield batches. `workers` threads make batches and read buffers ahead, without changing the result.

        The threads end with the generator. With `pin` the tensors are in pinned memory, if there is a GPU.
        """
        placed = partial(_make_batch, pin and torch.cuda.is_available())
        if workers == 0:
            yield from map(placed, self._jobs(position, lambda each: partial(self._reader.read, each)))
            return
        stop = Event()
        # Two executors: reading a buffer may take long, and batches must not queue behind it.
        readers, makers = ThreadPoolExecutor(workers, "pools"), ThreadPoolExecutor(workers, "batches")

        def start(buffer_position: BufferPosition) -> Callable[[], ShuffleBuffer]:
            return readers.submit(self._reader.read, buffer_position, stop.is_set).result

        try:
            waiting: deque[Future[BatchWithPosition]] = deque()
            for job in self._jobs(position, start, buffers_ahead=workers):
                waiting.append(makers.submit(placed, job))
                if len(waiting) > BATCHES_AHEAD * workers:
                    yield waiting.popleft().result()
        finally:
            stop.set()
            for threads in (readers, makers):
                threads.shutdown(cancel_futures=True)

    def _jobs(
        self,
        position: Position,
        start: Callable[[BufferPosition], Callable[[], ShuffleBuffer]],
        buffers_ahead: int = 1,
    ) -> Iterator[_BatchJob]:
        """Yield all remaining batches. The next buffers are read while one is in use.

        `start` begins to read a buffer, and returns a function that waits for it.
        """
        first = position.batch
        found = position != Position(position.epoch)  # whether the epoch has a batch; unknown at its start
        coming: deque[tuple[BufferPosition, Callable[[], ShuffleBuffer]]] = deque()
        for buffer_position in self._buffer_positions(position):
            coming.append((buffer_position, start(buffer_position)))
            if len(coming) <= buffers_ahead:
                continue
            here, wait_for_buffer = coming.popleft()
            following = coming[0][0]
            pool = wait_for_buffer()
            if first and first >= len(pool.batch_rows):
                raise _position_error(position)
            for number in range(first, len(pool.batch_rows)):
                found = True
                is_last = number + 1 == len(pool.batch_rows)
                after = (following.epoch, following.pool) if is_last else (here.epoch, here.pool, number + 1)
                yield _BatchJob(pool, number, Position(*after))
            if following.epoch != here.epoch:
                self._require_batches(found, here.epoch)
                found = False
            first = 0

    def _buffer_positions(self, position: Position) -> Iterator[BufferPosition]:
        epoch, first = position.epoch, position.pool
        while True:
            positions = epoch_buffers(self._corpora, self._seed, epoch)
            self._require_batches(bool(positions), epoch)
            if first >= len(positions):
                raise _position_error(position)
            yield from positions[first:]
            epoch, first = epoch + 1, 0

    def _require_batches(self, found: bool, epoch: int) -> None:
        if not found:
            raise DataError("epoch_without_pairs", epoch=epoch, folder=self._folder)


def _position_error(position: Position) -> UsageError:
    return UsageError("batch_position_not_found", position=position)


def _make_merge_dropout(tokenizer: Tokenizer, rate: float) -> BPEDropout:
    if not isinstance(tokenizer, SentencePiece):
        raise UsageError("dropout_kind_without_merges", kind=tokenizer.kind)
    return BPEDropout(tokenizer, rate)


def count_batches(prepared: PreparedData, batch_tokens: int, seed: int, sort_within: int = BUFFER_PAIRS) -> int:
    """Return the number of batches of the first epoch, without BPE-dropout. Reads all data."""
    reader = BufferReader(prepared, batch_tokens, seed, None, sort_within)
    return sum(len(reader.read(position).batch_rows) for position in epoch_buffers(prepared.corpora, seed, 0))


def _make_batch(pin: bool, job: _BatchJob) -> BatchWithPosition:
    batch = job.buffer.batch(job.batch)
    return BatchWithPosition(batch.pin() if pin else batch, job.next_position)
