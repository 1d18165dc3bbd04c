"""Batches of like length under a budget."""

import random
from collections import Counter
from itertools import islice, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.batch import Batch, Example
from attendo.data.buckets import bucketed, group_by_length
from attendo.text import PAD

lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)


@given(lengths, st.integers(1, 100), st.integers(0, 5), st.integers(1, 20))
def test_the_budget_holds_and_every_example_is_kept_once(
    sizes: list[tuple[int, int]], budget: int, seed: int, pool: int
) -> None:
    examples = numbered(sizes)
    batches = list(bucketed(examples, budget, seed, pool))
    for batch in batches:
        rows = batch.source_ids.size(0)
        widest = max(batch.source_ids.size(1), batch.target_ids.size(1))
        assert rows == 1 or rows * widest <= budget
    assert Counter(row for batch in batches for row in source_rows(batch)) == Counter(
        (*example.source, 3) for example in examples
    )


def test_the_seed_alone_decides_the_order() -> None:
    examples = numbered([(n % 9 + 1, n % 7 + 1) for n in range(200)])
    first = [source_rows(batch) for batch in bucketed(examples, 40, seed=1)]
    random.seed(99)
    assert [source_rows(batch) for batch in bucketed(examples, 40, seed=1)] == first
    assert [source_rows(batch) for batch in bucketed(examples, 40, seed=2)] != first


def test_batches_do_not_come_from_short_to_long() -> None:
    examples = numbered([(n % 50 + 1, 1) for n in range(500)])
    widths = [batch.source_ids.size(1) for batch in bucketed(examples, 100, seed=1)]
    assert widths != sorted(widths)


def test_like_lengths_come_together() -> None:
    examples = numbered([(n % 50 + 1, n % 50 + 1) for n in range(500)])
    padding = sum(int((batch.source_ids == PAD).sum()) for batch in bucketed(examples, 200, seed=1))
    positions = sum(batch.source_ids.numel() for batch in bucketed(examples, 200, seed=1))
    assert padding < 0.05 * positions


def test_examples_without_end_are_read_only_as_far_as_needed() -> None:
    batches = bucketed(repeat(Example([5], [5])), 8, seed=1, pool=10)
    assert sum(batch.source_ids.size(0) for batch in islice(batches, 3)) == 10


@pytest.mark.parametrize("budget", [1, 5])
def test_a_sentence_longer_than_the_budget_stands_alone(budget: int) -> None:
    groups = list(group_by_length(numbered([(10, 2), (12, 3)]), budget))
    assert [len(group) for group in groups] == [1, 1]


def numbered(sizes: list[tuple[int, int]]) -> list[Example]:
    """Examples of these sizes that can be told apart: each is made of its own id."""
    return [Example([4 + n] * source, [4 + n] * target) for n, (source, target) in enumerate(sizes)]


def source_rows(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(n for n in row if n != PAD) for row in batch.source_ids.tolist()]
