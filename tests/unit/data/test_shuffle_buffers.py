"""The order of an epoch: shuffle buffers of random blocks."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from prepared_data import from_lengths

from attendo.data import sampler
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BufferPosition, BufferReader, epoch_buffers
from attendo.keyed_random import Keys


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of 16 blocks with 4 pairs each, so that tests need few pairs."""
    monkeypatch.setattr(sampler, "BLOCK_PAIRS", 4)
    monkeypatch.setattr(sampler, "BUFFER_PAIRS", 64)


def test_an_epoch_reads_every_block_once(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 301])
    buffers = epoch_buffers(prepared.corpora, 1, 0)
    assert [buffer.pool for buffer in buffers] == list(range(5))
    assert sorted(list_numbers(prepared, buffers)) == list(range(301))
    pairs = [sum(block["last"] - block["first"] for block in buffer.blocks) for buffer in buffers]
    assert all(64 - 4 < count < 64 + 4 for count in pairs[:-1])


def test_epoch_and_seed_change_the_order(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 300])
    keys = ((1, 0), (1, 1), (2, 0))
    orders = {tuple(list_numbers(prepared, epoch_buffers(prepared.corpora, seed, epoch))) for seed, epoch in keys}
    assert len(orders) == 3
    assert tuple(list_numbers(prepared, epoch_buffers(prepared.corpora, 1, 0))) in orders
    first_buffers = {
        tuple(epoch_buffers(prepared.corpora, seed, epoch)[0].blocks["first"].tolist()) for seed, epoch in keys
    }
    assert len(first_buffers) == 3


def test_the_first_buffer_samples_the_complete_corpus(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 2000])
    quarters = Counter(number // 500 for number in list_numbers(prepared, epoch_buffers(prepared.corpora, 1, 0)[:1]))
    assert all(quarters[quarter] >= 4 for quarter in range(4))


def test_a_corpus_of_one_buffer_is_shuffled_completely(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 64])
    (position,) = epoch_buffers(prepared.corpora, 1, 0)
    order = BufferReader(prepared, 100, 1).read(position).numbers.tolist()
    assert sorted(order) == list(range(64))
    neighbours = sum(abs(a - b) == 1 for a, b in pairwise(order))
    assert neighbours < 10


def test_a_weight_sets_the_passes_per_epoch(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 400, [(2, 2)] * 200, [(2, 2)] * 30], weights=[0.25, 2.5, 1.0])
    epochs = [Counter(list_numbers(prepared, epoch_buffers(prepared.corpora, 1, epoch))) for epoch in range(3)]
    for counts in epochs:
        assert {counts[number] for number in range(400)} == {0, 1}
        assert 60 < sum(counts[number] for number in range(400)) < 140
        assert {counts[number] for number in range(400, 600)} == {2, 3}
        assert 60 < sum(counts[number] - 2 for number in range(400, 600)) < 140
        assert {counts[number] for number in range(600, 630)} == {1}
    assert epochs[0] != epochs[1]


def test_a_small_weight_does_not_give_small_buffers(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 2000], weights=[0.1])
    positions = epoch_buffers(prepared.corpora, 1, 0)
    assert len(positions) == 4
    assert all(40 < len(BufferReader(prepared, 100, 1).read(position).numbers) < 90 for position in positions[:3])


def test_long_sentences_give_buffers_of_fewer_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BUFFER_TOKENS", 1000)
    prepared = from_lengths(tmp_path, [[(20, 30)] * 200])
    tokens = [
        len(buffer.source.ids) + len(buffer.target.ids)
        for buffer in (
            BufferReader(prepared, 100, 1).read(position) for position in epoch_buffers(prepared.corpora, 1, 0)
        )
    ]
    assert len(tokens) == 10
    assert max(tokens) <= 1000 + 4 * 50


def test_numbers_identify_the_pairs(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 1)] * 70, [(1, 3)] * 50], weights=[1.5, 1.0])
    for position in epoch_buffers(prepared.corpora, 1, 0):
        buffer = BufferReader(prepared, 100, 1).read(position)
        for row, number in enumerate(buffer.numbers.tolist()):
            lengths = (2, 1) if number < 70 else (1, 3)
            assert (buffer.source[row], buffer.target[row]) == ([4 + number] * lengths[0], [4 + number] * lengths[1])


def test_batches_are_not_sorted_by_length(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(n + 1, n + 1) for n in range(64)]])
    (position,) = epoch_buffers(prepared.corpora, 1, 0)
    buffer = BufferReader(prepared, 64, 1).read(position)
    widths = [buffer.batch(number).source_ids.size(1) for number in range(len(buffer.batch_rows))]
    assert widths not in (sorted(widths), sorted(widths, reverse=True))


class DoublingTokenizer:
    """Splits each sentence with an even key into twice as many pieces."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.rounds: list[int] = []

    def __call__(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], keys: Keys, of_round: Keys
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        self.keys += keys.tolist()
        self.rounds += of_round.tolist()
        times = np.where(keys % np.uint64(2) == 0, 2, 1)
        lengths = np.diff(offsets)
        ends = np.concatenate([[0], np.cumsum(lengths * times)])
        return np.repeat(ids, np.repeat(times, lengths)), ends


def test_resegmentation_happens_before_batching(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(3, 5)] * 60])
    (position,) = epoch_buffers(prepared.corpora, 1, 0)
    buffer = BufferReader(prepared, 40, 1, (DoublingTokenizer(), DoublingTokenizer())).read(position)
    assert {3, 6} == set(buffer.source.lengths.tolist())
    assert {5, 10} == set(buffer.target.lengths.tolist())
    for number in range(len(buffer.batch_rows)):
        batch = buffer.batch(number)
        assert batch.source_ids.size(0) * max(batch.source_ids.size(1), batch.target_ids.size(1)) <= 40


def test_a_sentence_that_would_become_too_long_is_unchanged(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(700, 2)] * 20])
    (position,) = epoch_buffers(prepared.corpora, 1, 0)
    buffer = BufferReader(prepared, 40, 1, (DoublingTokenizer(), DoublingTokenizer())).read(position)
    assert set(buffer.source.lengths.tolist()) == {700}
    assert set(buffer.target.lengths.tolist()) == {2, 4}
    assert all(buffer.source[row] == [4 + number] * 700 for row, number in enumerate(buffer.numbers.tolist()))


def test_keys_differ_by_epoch_side_and_copy(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(3, 5)] * 20], weights=[3.0])
    keys: list[int] = []
    rounds: list[int] = []
    for epoch in range(2):
        tokenizers = (DoublingTokenizer(), DoublingTokenizer())
        for position in epoch_buffers(prepared.corpora, 1, epoch):
            BufferReader(prepared, 40, 1, tokenizers).read(position)
        keys += tokenizers[0].keys + tokenizers[1].keys
        rounds += set(tokenizers[0].rounds + tokenizers[1].rounds)
    assert len(set(keys)) == len(keys) == 2 * 2 * 3 * 20
    assert len(set(rounds)) == len(rounds) == 2, "one per epoch"


def test_a_stopped_read_is_cancelled(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(3, 5)] * 20])
    (position,) = epoch_buffers(prepared.corpora, 1, 0)
    tokenizer = DoublingTokenizer()
    with pytest.raises(CancelledError):
        BufferReader(prepared, 40, 1, (tokenizer, tokenizer)).read(position, lambda: True)
    assert tokenizer.keys == []


def list_numbers(prepared: PreparedData, positions: list[BufferPosition]) -> list[int]:
    """The numbers of all pairs in these buffers, in batch order."""
    return list(iterate_numbers(prepared, positions))


def iterate_numbers(prepared: PreparedData, positions: list[BufferPosition]) -> Iterator[int]:
    reader = BufferReader(prepared, 100, 1)
    for position in positions:
        buffer = reader.read(position)
        for number in range(len(buffer.batch_rows)):
            yield from buffer.batch(number).numbers
