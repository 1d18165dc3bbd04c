"""What holds for the batches of any data: nothing lost, nothing twice, the budget kept, the order up to the seed."""

from collections import Counter
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prepared_data import from_lengths

from attendo.data import sampler as pools_module
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BatchStream, BatchWithPosition, Position
from attendo.text import EOS

Sizes = list[list[tuple[int, int]]]

corpora = st.lists(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=30), min_size=1, max_size=3
)
budgets, seeds = st.integers(1, 80), st.integers(0, 5)


@given(corpora, budgets, seeds)
def test_an_epoch_has_every_pair_exactly_once_and_keeps_the_budget(sizes: Sizes, budget: int, seed: int) -> None:
    lengths = [pair for corpus in sizes for pair in corpus]
    with small_pools(), TemporaryDirectory() as folder:
        epochs = first_epochs(from_lengths(Path(folder), sizes), budget, seed, 2)
    for epoch in epochs:
        assert Counter(number for placed in epoch for number in placed.batch.numbers) == Counter(range(len(lengths)))
        for placed in epoch:
            rows = placed.batch.source_ids.size(0)
            widest = max(placed.batch.source_ids.size(1), placed.batch.target_ids.size(1))
            assert rows == 1 or rows * widest <= budget
            assert_rows_are_their_pairs(placed, lengths)


@given(corpora, budgets, seeds, st.data())
def test_a_stream_goes_on_from_any_position_as_if_never_left(
    sizes: Sizes, budget: int, seed: int, data: st.DataObject
) -> None:
    with small_pools(), TemporaryDirectory() as folder:
        prepared = from_lengths(Path(folder), sizes, weights=[1.5, 0.7, 2.0][: len(sizes)])
        stream = BatchStream(prepared, budget, seed)
        whole = list(islice(stream.batches(), 25))
        left = data.draw(st.integers(0, 20))
        resumed = BatchStream(prepared, budget, seed).batches(whole[left].next_position)
        for placed, expected in zip(resumed, whole[left + 1 :], strict=False):
            assert_equal(placed, expected)


@given(corpora, budgets, seeds, st.sampled_from([1, 2, 4]))
def test_R9_the_order_is_the_same_for_any_number_of_workers(sizes: Sizes, budget: int, seed: int, workers: int) -> None:
    with small_pools(), TemporaryDirectory() as folder:
        stream = BatchStream(from_lengths(Path(folder), sizes), budget, seed)
        together = stream.batches(workers=workers)
        for placed, expected in zip(together, islice(stream.batches(), 20), strict=False):
            assert_equal(placed, expected)
        together.close()


@given(corpora, budgets, st.integers(1, 4))
def test_R9_the_order_is_the_same_for_any_number_of_processes(sizes: Sizes, budget: int, world: int) -> None:
    with small_pools(), TemporaryDirectory() as folder:
        stream = BatchStream(from_lengths(Path(folder), sizes), budget, 1)
        for placed in islice(stream.batches(), 15):
            shares = [placed.batch.shard(rank, world).numbers for rank in range(world)]
            rows = len(placed.batch.numbers)
            assert tuple(shares[row % world][row // world] for row in range(rows)) == placed.batch.numbers


def first_epochs(prepared: PreparedData, budget: int, seed: int, count: int) -> list[list[BatchWithPosition]]:
    epochs: list[list[BatchWithPosition]] = [[] for _ in range(count)]
    position = Position()
    for placed in BatchStream(prepared, budget, seed).batches():
        epochs[position.epoch].append(placed)
        position = placed.next_position
        if position.epoch == count:
            break
    return epochs


def assert_rows_are_their_pairs(placed: BatchWithPosition, lengths: list[tuple[int, int]]) -> None:
    """The ids of a pair tell its number."""
    for row, number in enumerate(placed.batch.numbers):
        source, target = lengths[number]
        assert placed.batch.source_ids[row, : source + 1].tolist() == [4 + number] * source + [EOS]
        assert placed.batch.labels[row, : target + 1].tolist() == [4 + number] * target + [EOS]


def assert_equal(placed: BatchWithPosition, expected: BatchWithPosition) -> None:
    assert placed.next_position == expected.next_position
    assert placed.batch.numbers == expected.batch.numbers
    assert torch.equal(placed.batch.source_ids, expected.batch.source_ids)
    assert torch.equal(placed.batch.labels, expected.batch.labels)


class small_pools(pytest.MonkeyPatch):  # noqa: N801
    """So that few pairs make several blocks and pools."""

    def __enter__(self) -> None:
        self.setattr(pools_module, "BLOCK_PAIRS", 3)
        self.setattr(pools_module, "BUFFER_PAIRS", 12)

    def __exit__(self, *fault: object) -> None:
        self.undo()
