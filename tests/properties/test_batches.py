"""Batches of any data have every pair once, keep the budget, and follow an order that depends on the seed."""

from collections import Counter
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prepared_data import from_lengths

from attendo.data import sampler as sampler_module
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BatchStream, BatchWithPosition, Position
from attendo.text import EOS

Sizes = list[list[tuple[int, int]]]

corpora = st.lists(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=30), min_size=1, max_size=3
)
budgets, seeds = st.integers(1, 80), st.integers(0, 5)


@given(corpora, budgets, seeds)
def test_an_epoch_has_every_pair_once_within_the_budget(sizes: Sizes, budget: int, seed: int) -> None:
    lengths = [pair for corpus in sizes for pair in corpus]
    with small_pools(), TemporaryDirectory() as folder:
        epochs = first_epochs(from_lengths(Path(folder), sizes), budget, seed, 2)
    for epoch in epochs:
        assert Counter(number for item in epoch for number in item.batch.numbers) == Counter(range(len(lengths)))
        for item in epoch:
            rows = item.batch.source_ids.size(0)
            widest = max(item.batch.source_ids.size(1), item.batch.target_ids.size(1))
            assert rows == 1 or rows * widest <= budget
            assert_rows_are_their_pairs(item, lengths)


@given(corpora, budgets, seeds, st.data())
def test_a_stream_resumes_from_any_position(sizes: Sizes, budget: int, seed: int, data: st.DataObject) -> None:
    with small_pools(), TemporaryDirectory() as folder:
        prepared = from_lengths(Path(folder), sizes, weights=[1.5, 0.7, 2.0][: len(sizes)])
        stream = BatchStream(prepared, budget, seed)
        uninterrupted = list(islice(stream.batches(), 25))
        index = data.draw(st.integers(0, 20))
        resumed = BatchStream(prepared, budget, seed).batches(uninterrupted[index].next_position)
        for item, expected in zip(resumed, uninterrupted[index + 1 :], strict=False):
            assert_equal(item, expected)


@given(corpora, budgets, seeds, st.sampled_from([1, 2, 4]))
def test_R9_the_order_is_the_same_for_any_number_of_workers(sizes: Sizes, budget: int, seed: int, workers: int) -> None:
    with small_pools(), TemporaryDirectory() as folder:
        stream = BatchStream(from_lengths(Path(folder), sizes), budget, seed)
        together = stream.batches(workers=workers)
        for item, expected in zip(together, islice(stream.batches(), 20), strict=False):
            assert_equal(item, expected)
        together.close()


@given(corpora, budgets, st.integers(1, 4))
def test_R9_the_order_is_the_same_for_any_number_of_processes(sizes: Sizes, budget: int, world: int) -> None:
    with small_pools(), TemporaryDirectory() as folder:
        stream = BatchStream(from_lengths(Path(folder), sizes), budget, 1)
        for item in islice(stream.batches(), 15):
            shares = [item.batch.shard(rank, world).numbers for rank in range(world)]
            rows = len(item.batch.numbers)
            assert tuple(shares[row % world][row // world] for row in range(rows)) == item.batch.numbers


def first_epochs(prepared: PreparedData, budget: int, seed: int, count: int) -> list[list[BatchWithPosition]]:
    epochs: list[list[BatchWithPosition]] = [[] for _ in range(count)]
    position = Position()
    for item in BatchStream(prepared, budget, seed).batches():
        epochs[position.epoch].append(item)
        position = item.next_position
        if position.epoch == count:
            break
    return epochs


def assert_rows_are_their_pairs(item: BatchWithPosition, lengths: list[tuple[int, int]]) -> None:
    """The ids of a pair encode its number."""
    for row, number in enumerate(item.batch.numbers):
        source, target = lengths[number]
        assert item.batch.source_ids[row, : source + 1].tolist() == [4 + number] * source + [EOS]
        assert item.batch.labels[row, : target + 1].tolist() == [4 + number] * target + [EOS]


def assert_equal(item: BatchWithPosition, expected: BatchWithPosition) -> None:
    assert item.next_position == expected.next_position
    assert item.batch.numbers == expected.batch.numbers
    assert torch.equal(item.batch.source_ids, expected.batch.source_ids)
    assert torch.equal(item.batch.labels, expected.batch.labels)


class small_pools(pytest.MonkeyPatch):  # noqa: N801
    """Small blocks and pools, so that few pairs fill several of them."""

    def __enter__(self) -> None:
        self.setattr(sampler_module, "BLOCK_PAIRS", 3)
        self.setattr(sampler_module, "BUFFER_PAIRS", 12)

    def __exit__(self, *error: object) -> None:
        self.undo()
