"""Batches without end, from any place on, in an order that the data and the seed alone decide."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event

import torch

from attendo.data.batch import Batch
from attendo.data.pools import POOL_PAIRS, Place, Pool, PoolReader, pools
from attendo.data.prepared import Prepared
from attendo.errors import DataError, UsageError
from attendo.text import SentencePiece, Tokenizer
from attendo.text.merge_dropout import MergeDropout

BATCHES_AHEAD = 4  # of each worker, made before they are asked for


@dataclass(frozen=True)
class Position:
    """Of the next batch."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


START = Position()


@dataclass(frozen=True)
class Placed:
    """A batch, and where to go on after it."""

    batch: Batch
    after: Position


@dataclass(frozen=True)
class _Job:
    pool: Pool
    batch: int
    after: Position


@dataclass(frozen=True)
class _Later:
    """A pool that is read when it is asked for: what a future is without threads."""

    result: Callable[[], Pool]


class BatchStream:
    """The training pairs epoch after epoch. Nothing about the order is state: a position is all there is to save."""

    def __init__(
        self, prepared: Prepared, batch_tokens: int, seed: int, dropout: float = 0.0, sort_within: int = POOL_PAIRS
    ) -> None:
        """`dropout` is the rate of BPE-dropout; for `sort_within` see `cut`."""
        recut = None
        if dropout:
            source = _merge_dropout(prepared.source_tokenizer, dropout)
            joint = prepared.target_tokenizer is prepared.source_tokenizer
            recut = (source, source if joint else _merge_dropout(prepared.target_tokenizer, dropout))
        self._corpora, self._seed = prepared.corpora, seed
        self._folder = prepared.folder
        self._reader = PoolReader(prepared, batch_tokens, seed, recut, sort_within)

    def batches(self, position: Position = START, workers: int = 0, pin: bool = False) -> Generator[Placed, None, None]:
        """The same batches however many `workers`: threads that make batches and read as many pools in advance.

        They end with the generator. With `pin` the tensors are in pinned memory, where there is a GPU.
        """
        placed = partial(_placed, pin and torch.cuda.is_available())
        if workers == 0:
            yield from map(placed, self._jobs(position, lambda place: _Later(partial(self._reader.read, place))))
            return
        stop = Event()
        # Apart, because a pool may take long to read and batches must not stand in line behind it.
        readers, makers = ThreadPoolExecutor(workers, "pools"), ThreadPoolExecutor(workers, "batches")

        def start(place: Place) -> Future[Pool]:
            return readers.submit(self._reader.read, place, stop.is_set)

        try:
            waiting: deque[Future[Placed]] = deque()
            for job in self._jobs(position, start, pools_ahead=workers):
                waiting.append(makers.submit(placed, job))
                if len(waiting) > BATCHES_AHEAD * workers:
                    yield waiting.popleft().result()
        finally:
            stop.set()
            for threads in (readers, makers):
                threads.shutdown(cancel_futures=True)

    def _jobs(
        self, position: Position, start: Callable[[Place], Future[Pool] | _Later], pools_ahead: int = 1
    ) -> Iterator[_Job]:
        """All batches still to be made; while a pool is worked through the next ones are being read."""
        places = self._places(position)
        first = position.batch
        found = position != Position(position.epoch)  # whether the epoch has a batch, at its start not yet known
        coming: deque[tuple[Place, Future[Pool] | _Later]] = deque()
        for place in places:
            coming.append((place, start(place)))
            if len(coming) <= pools_ahead:
                continue
            here, reading = coming.popleft()
            following = coming[0][0]
            pool = reading.result()
            if first and first >= len(pool.groups):
                raise _no_such(position)
            for number in range(first, len(pool.groups)):
                found = True
                is_last = number + 1 == len(pool.groups)
                after = (following.epoch, following.pool) if is_last else (here.epoch, here.pool, number + 1)
                yield _Job(pool, number, Position(*after))
            if following.epoch != here.epoch:
                self._require(found, here.epoch)
                found = False
            first = 0

    def _places(self, position: Position) -> Iterator[Place]:
        epoch, first = position.epoch, position.pool
        while True:
            places = pools(self._corpora, self._seed, epoch)
            self._require(bool(places), epoch)
            if first >= len(places):
                raise _no_such(position)
            yield from places[first:]
            epoch, first = epoch + 1, 0

    def _require(self, found: bool, epoch: int) -> None:
        if not found:
            raise DataError("epoch_without_pairs", epoch=epoch, folder=self._folder)


def _no_such(position: Position) -> UsageError:
    return UsageError("batch_position_not_found", position=position)


def _merge_dropout(tokenizer: Tokenizer, rate: float) -> MergeDropout:
    if not isinstance(tokenizer, SentencePiece):
        raise UsageError("dropout_kind_without_merges", kind=tokenizer.kind)
    return MergeDropout(tokenizer, rate)


def count_batches(prepared: Prepared, batch_tokens: int, seed: int, sort_within: int = POOL_PAIRS) -> int:
    """Batches of the first epoch, without BPE-dropout. Reads all of the data."""
    reader = PoolReader(prepared, batch_tokens, seed, None, sort_within)
    return sum(len(reader.read(place).groups) for place in pools(prepared.corpora, seed, 0))


def _placed(pin: bool, job: _Job) -> Placed:
    batch = job.pool.batch(job.batch)
    return Placed(batch.pin() if pin else batch, job.after)
