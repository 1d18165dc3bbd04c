"""The order of an epoch."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from prepared_data import from_lengths

from attendo.data import sampler as pools_module
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BufferPosition, BufferReader, epoch_buffers
from attendo.keyed_random import Keys


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of 16 blocks of 4 pairs, so that few pairs show what many would."""
    monkeypatch.setattr(pools_module, "BLOCK_PAIRS", 4)
    monkeypatch.setattr(pools_module, "BUFFER_PAIRS", 64)


def test_an_epoch_reads_every_block_once(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 301])
    places = epoch_buffers(prepared.corpora, 1, 0)
    assert [place.pool for place in places] == list(range(5))
    assert sorted(numbers(prepared, places)) == list(range(301))
    pairs = [sum(block["last"] - block["first"] for block in place.blocks) for place in places]
    assert all(64 - 4 < count < 64 + 4 for count in pairs[:-1])


def test_another_epoch_or_seed_is_another_order(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 300])
    keys = ((1, 0), (1, 1), (2, 0))
    orders = {tuple(numbers(prepared, epoch_buffers(prepared.corpora, seed, epoch))) for seed, epoch in keys}
    assert len(orders) == 3
    assert tuple(numbers(prepared, epoch_buffers(prepared.corpora, 1, 0))) in orders
    first_pools = {
        tuple(epoch_buffers(prepared.corpora, seed, epoch)[0].blocks["first"].tolist()) for seed, epoch in keys
    }
    assert len(first_pools) == 3


def test_the_first_pool_is_drawn_from_everywhere(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 2000])
    places = Counter(number // 500 for number in numbers(prepared, epoch_buffers(prepared.corpora, 1, 0)[:1]))
    assert all(places[quarter] >= 4 for quarter in range(4))


def test_a_corpus_of_one_pool_is_shuffled_whole(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 64])
    (place,) = epoch_buffers(prepared.corpora, 1, 0)
    order = BufferReader(prepared, 100, 1).read(place).numbers.tolist()
    assert sorted(order) == list(range(64))
    neighbours = sum(abs(a - b) == 1 for a, b in pairwise(order))
    assert neighbours < 10


def test_a_weight_is_how_often_an_epoch_goes_through_a_corpus(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 400, [(2, 2)] * 200, [(2, 2)] * 30], weights=[0.25, 2.5, 1.0])
    epochs = [Counter(numbers(prepared, epoch_buffers(prepared.corpora, 1, epoch))) for epoch in range(3)]
    for drawn in epochs:
        assert {drawn[number] for number in range(400)} == {0, 1}
        assert 60 < sum(drawn[number] for number in range(400)) < 140
        assert {drawn[number] for number in range(400, 600)} == {2, 3}
        assert 60 < sum(drawn[number] - 2 for number in range(400, 600)) < 140
        assert {drawn[number] for number in range(600, 630)} == {1}
    assert epochs[0] != epochs[1]


def test_pools_of_a_corpus_of_small_weight_are_not_small(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 2)] * 2000], weights=[0.1])
    places = epoch_buffers(prepared.corpora, 1, 0)
    assert len(places) == 4
    assert all(40 < len(BufferReader(prepared, 100, 1).read(place).numbers) < 90 for place in places[:3])


def test_long_sentences_make_pools_of_fewer_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools_module, "BUFFER_TOKENS", 1000)
    prepared = from_lengths(tmp_path, [[(20, 30)] * 200])
    tokens = [
        len(pool.source.ids) + len(pool.target.ids)
        for pool in (BufferReader(prepared, 100, 1).read(place) for place in epoch_buffers(prepared.corpora, 1, 0))
    ]
    assert len(tokens) == 10
    assert max(tokens) <= 1000 + 4 * 50


def test_numbers_name_the_pairs_that_were_read(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(2, 1)] * 70, [(1, 3)] * 50], weights=[1.5, 1.0])
    for place in epoch_buffers(prepared.corpora, 1, 0):
        pool = BufferReader(prepared, 100, 1).read(place)
        for row, number in enumerate(pool.numbers.tolist()):
            lengths = (2, 1) if number < 70 else (1, 3)
            assert (pool.source[row], pool.target[row]) == ([4 + number] * lengths[0], [4 + number] * lengths[1])


def test_batches_do_not_come_from_short_to_long(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(n + 1, n + 1) for n in range(64)]])
    (place,) = epoch_buffers(prepared.corpora, 1, 0)
    pool = BufferReader(prepared, 64, 1).read(place)
    widths = [pool.batch(number).source_ids.size(1) for number in range(len(pool.batch_rows))]
    assert widths != sorted(widths)
    assert sorted(widths) != sorted(widths, reverse=True)


class Doubled:
    """Cuts each sentence whose key is even into twice as many pieces."""

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


def test_sentences_are_cut_otherwise_before_their_lengths_are_measured(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(3, 5)] * 60])
    (place,) = epoch_buffers(prepared.corpora, 1, 0)
    pool = BufferReader(prepared, 40, 1, (Doubled(), Doubled())).read(place)
    assert {3, 6} == set(pool.source.lengths.tolist())
    assert {5, 10} == set(pool.target.lengths.tolist())
    for number in range(len(pool.batch_rows)):
        batch = pool.batch(number)
        assert batch.source_ids.size(0) * max(batch.source_ids.size(1), batch.target_ids.size(1)) <= 40


def test_a_sentence_that_would_become_too_long_stays_as_it_was(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(700, 2)] * 20])
    (place,) = epoch_buffers(prepared.corpora, 1, 0)
    pool = BufferReader(prepared, 40, 1, (Doubled(), Doubled())).read(place)
    assert set(pool.source.lengths.tolist()) == {700}
    assert set(pool.target.lengths.tolist()) == {2, 4}
    assert all(pool.source[row] == [4 + number] * 700 for row, number in enumerate(pool.numbers.tolist()))


def test_keys_tell_epochs_sides_and_copies_apart(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(3, 5)] * 20], weights=[3.0])
    seen: list[int] = []
    rounds: list[int] = []
    for epoch in range(2):
        recut = (Doubled(), Doubled())
        for place in epoch_buffers(prepared.corpora, 1, epoch):
            BufferReader(prepared, 40, 1, recut).read(place)
        seen += recut[0].keys + recut[1].keys
        rounds += set(recut[0].rounds + recut[1].rounds)
    assert len(set(seen)) == len(seen) == 2 * 2 * 3 * 20
    assert len(set(rounds)) == len(rounds) == 2, "one of each epoch"


def test_a_pool_that_nobody_waits_for_is_given_up(tmp_path: Path) -> None:
    prepared = from_lengths(tmp_path, [[(3, 5)] * 20])
    (place,) = epoch_buffers(prepared.corpora, 1, 0)
    recut = Doubled()
    with pytest.raises(CancelledError):
        BufferReader(prepared, 40, 1, (recut, recut)).read(place, lambda: True)
    assert recut.keys == []


def numbers(prepared: PreparedData, places: list[BufferPosition]) -> list[int]:
    """Of all pairs in these pools, batch by batch."""
    return list(_numbers(prepared, places))


def _numbers(prepared: PreparedData, places: list[BufferPosition]) -> Iterator[int]:
    reader = BufferReader(prepared, 100, 1)
    for place in places:
        pool = reader.read(place)
        for number in range(len(pool.batch_rows)):
            yield from pool.batch(number).numbers
