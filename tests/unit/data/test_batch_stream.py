"""The endless stream of batches."""

import threading
import time
from collections.abc import Generator
from itertools import islice
from pathlib import Path

import pytest
import torch
from error_codes import has_code
from prepared_data import ListCorpus, from_lengths, prepare_all, sentences

from attendo.data import sampler
from attendo.data.batch import Batch
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BatchStream, BatchWithPosition, BufferPosition, BufferReader, Position, ShuffleBuffer
from attendo.errors import DataError, UsageError
from attendo.text import PAD
from attendo.text.config import TokenizerConfig

BPE = TokenizerConfig(size=330, joint=True)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BLOCK_PAIRS", 4)
    monkeypatch.setattr(sampler, "BUFFER_PAIRS", 64)


@pytest.fixture
def data(tmp_path: Path) -> PreparedData:
    """Data with three buffers per epoch."""
    return from_lengths(tmp_path, [[(n % 7 + 1, n % 5 + 1) for n in range(150)]])


def test_after_the_last_batch_comes_the_next_epoch(data: PreparedData) -> None:
    positions = [item.next_position for item in islice(BatchStream(data, 30, 1).batches(), 300)]
    assert positions == sorted(positions, key=lambda each: (each.epoch, each.pool, each.batch))
    assert {(each.epoch, each.pool) for each in positions if each.epoch == 0} == {(0, 0), (0, 1), (0, 2)}
    assert Position(1, 0, 0) in positions
    epoch = positions.index(Position(1, 0, 0)) + 1
    batches = list(islice(BatchStream(data, 30, 1).batches(), epoch))
    assert sorted(number for item in batches for number in item.batch.numbers) == list(range(150))


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_R9_batches_do_not_depend_on_the_number_of_workers(tmp_path: Path, workers: int, dropout: float) -> None:
    prepared = prepare_all(tmp_path / "data", ListCorpus(sentences(200)), tokenizer=BPE)
    stream = BatchStream(prepared, 60, 1, dropout)
    alone = list(islice(stream.batches(), 120))
    together = stream.batches(workers=workers)
    for expected, item in zip(alone, together, strict=False):
        assert_equal(item, expected)
    together.close()


def test_dropout_resegments_words_each_epoch(tmp_path: Path) -> None:
    prepared = prepare_all(tmp_path / "data", ListCorpus(sentences(60)), tokenizer=BPE)
    epochs = [read_epoch(prepared, BatchStream(prepared, 60, 1, 0.3), epoch) for epoch in (0, 1)]
    plain = read_epoch(prepared, BatchStream(prepared, 60, 1), 0)
    assert {number: text for number, (_, text) in epochs[0].items()} == {n: text for n, (_, text) in plain.items()}
    assert {number: ids for number, (ids, _) in epochs[0].items()} != {n: ids for n, (ids, _) in epochs[1].items()}
    assert sum(len(ids) for ids, _ in epochs[0].values()) > sum(len(ids) for ids, _ in plain.values())


def test_dropout_needs_a_tokenizer_that_merges(tmp_path: Path) -> None:
    words = prepare_all(tmp_path / "words", ListCorpus(sentences(20)))
    with pytest.raises(UsageError, check=has_code("dropout_kind_without_merges", kind="words")):
        BatchStream(words, 60, 1, 0.1)


@pytest.mark.parametrize("position", [Position(0, 3, 0), Position(0, 0, 1000), Position(4, 9, 9)])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_position_of_other_data_is_rejected(data: PreparedData, position: Position, workers: int) -> None:
    with pytest.raises(UsageError, check=has_code("batch_position_not_found")):
        next(BatchStream(data, 30, 1).batches(position, workers))
    assert batch_threads() == []


@pytest.mark.parametrize("weight", [1e-9, 1e-3])
def test_an_epoch_without_pairs_is_rejected(tmp_path: Path, weight: float) -> None:
    with pytest.raises(DataError, check=has_code("epoch_without_pairs", epoch=0)):
        next(BatchStream(from_lengths(tmp_path, [[(1, 1)] * 10], [weight]), 30, 1).batches())


def test_data_without_pairs_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, check=has_code("epoch_without_pairs")):
        next(BatchStream(from_lengths(tmp_path, [[]]), 30, 1).batches())


def test_close_ends_all_threads(data: PreparedData) -> None:
    batches = BatchStream(data, 30, 1).batches(workers=3)
    next(batches)
    assert 0 < len(batch_threads()) <= 4
    batches.close()
    assert batch_threads() == []


def test_a_deleted_iterator_ends_its_threads(data: PreparedData) -> None:
    batches: Generator[BatchWithPosition, None, None] | None = BatchStream(data, 30, 1).batches(workers=2)
    assert batches is not None
    next(batches)
    batches = None
    assert batch_threads() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_thread_error_is_raised_to_the_consumer(
    data: PreparedData, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    real = BufferReader.read

    def broken(self: BufferReader, buffer_position: BufferPosition, *stopped: object) -> ShuffleBuffer:
        if buffer_position.pool == 2:
            raise DataError("doctor_fault", line="the disk is gone")
        return real(self, buffer_position)

    monkeypatch.setattr(BufferReader, "read", broken)
    with pytest.raises(DataError, check=has_code("doctor_fault", line="the disk is gone")):
        list(islice(BatchStream(data, 30, 1).batches(workers=workers), 300))
    assert batch_threads() == []


def test_a_batch_error_is_raised_to_the_consumer(data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ShuffleBuffer, number: int) -> Batch:
        raise RuntimeError("no batch today")

    monkeypatch.setattr(ShuffleBuffer, "batch", broken)
    with pytest.raises(RuntimeError, match="no batch today"):
        next(BatchStream(data, 30, 1).batches(workers=2))
    assert batch_threads() == []


def test_prefetching_is_limited(data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = ShuffleBuffer.batch
    monkeypatch.setattr(ShuffleBuffer, "batch", lambda self, number: made.append(number) or real(self, number))
    batches = BatchStream(data, 10, 1).batches(workers=2)
    for _ in range(3):
        next(batches)
    wait_for_threads(made)
    assert len(made) <= 3 + 2 * sampler.BATCHES_AHEAD
    batches.close()


def test_pinning_is_skipped_without_a_gpu(data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []
    monkeypatch.setattr(Batch, "pin", lambda self: pinned.append(self) or self)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    next(BatchStream(data, 30, 1).batches(pin=True))
    assert not pinned
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    next(BatchStream(data, 30, 1).batches(pin=True))
    assert len(pinned) == 1
    next(BatchStream(data, 30, 1).batches(pin=False))
    assert len(pinned) == 1


def assert_equal(item: BatchWithPosition, expected: BatchWithPosition) -> None:
    assert item.next_position == expected.next_position
    first, second = item.batch, expected.batch
    assert (first.numbers, first.tokens, first.padding) == (second.numbers, second.tokens, second.padding)
    assert torch.equal(first.source_ids, second.source_ids)
    assert torch.equal(first.target_ids, second.target_ids)
    assert torch.equal(first.labels, second.labels)


def read_epoch(prepared: PreparedData, stream: BatchStream, epoch: int) -> dict[int, tuple[list[int], str]]:
    """The source ids of each pair in an epoch, and their text."""
    found = {}
    for item in stream.batches(Position(epoch)):
        for number, row in zip(item.batch.numbers, item.batch.source_ids.tolist(), strict=True):
            ids = [each for each in row if each != PAD]
            found[number] = (ids, prepared.source_tokenizer.decode(ids))
        if item.next_position.epoch > epoch:
            return found
    raise AssertionError("a stream has no end")


def wait_for_threads(made: list[int]) -> None:
    """Wait until the threads have nothing more to do."""
    before = -1
    while len(made) != before:
        before = len(made)
        time.sleep(0.05)


def batch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("batches")]
