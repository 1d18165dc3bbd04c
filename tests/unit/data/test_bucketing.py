"""Batches of similar length within a token budget."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.batch import Example, collate
from attendo.data.bucketing import group_by_length, make_batches
from attendo.data.corpus_files import read_lines
from attendo.text import SentencePiece

lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)


def test_similar_lengths_are_batched_together() -> None:
    examples = make_examples([(n % 50 + 1, n % 50 + 1) for n in range(500)])
    batches = [collate(group) for group in group_by_length(examples, 200)]
    assert sum(batch.padding for batch in batches) < 0.05 * sum(batch.positions for batch in batches)


@pytest.mark.parametrize("budget", [1, 5])
def test_a_sentence_longer_than_the_budget_is_a_batch(budget: int) -> None:
    groups = list(group_by_length(make_examples([(10, 2), (12, 3)]), budget))
    assert [len(group) for group in groups] == [1, 1]


@given(lengths, st.integers(1, 100), st.none() | st.integers(2, 20))
def test_every_row_is_in_one_batch_within_the_budget(
    sizes: list[tuple[int, int]], budget: int, sort_within: int | None
) -> None:
    source, target = np.array(sizes, np.int64).T + 1
    groups = make_batches(source, target, budget, sort_within)
    assert sorted(row for group in groups for row in group.tolist()) == list(range(len(sizes)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(source[group].max(), target[group].max()) <= budget


def test_no_rows_give_no_batches() -> None:
    nothing = np.zeros(0, np.int64)
    assert make_batches(nothing, nothing, 100) == []


def test_pairs_of_equal_length_keep_their_order() -> None:
    same = np.full(10, 5)
    assert [group.tolist() for group in make_batches(same, same, 20)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_rows_are_sorted_within_blocks_of_the_order() -> None:
    lengths_of_both = np.array([9, 2, 9, 2] * 4)
    groups = make_batches(lengths_of_both, lengths_of_both, 1000, sort_within=8)
    assert [group.tolist() for group in groups] == [[1, 3, 5, 7, 0, 2, 4, 6], [9, 11, 13, 15, 8, 10, 12, 14]]


def test_the_row_count_of_a_full_batch_depends_on_its_width() -> None:
    lengths_of_both = np.array([5] * 21 + [6] * 30)
    assert [len(group) for group in make_batches(lengths_of_both, lengths_of_both, 100)] == [16, 16, 16, 3]
    assert [len(group) for group in make_batches(lengths_of_both, lengths_of_both, 35)] == [7, 7, 7, *[5] * 6]


def test_similar_length_pairs_are_batched_together() -> None:
    """If sorted only by the longer side, each batch would mix both kinds and pad them."""
    source, target = np.array([9, 3] * 48), np.array([3, 9] * 48)
    for group in make_batches(source, target, 9 * 24):
        assert len({(int(source[row]), int(target[row])) for row in group}) == 1


@pytest.mark.slow
def test_padding_of_caption_batches_is_small(shared: Path) -> None:
    sides = [list(read_lines(shared / "data" / "multi30k" / f"train.{side}.gz")) for side in ("en", "de")]
    tokenizer = SentencePiece.train(chain(*sides), 8000)
    source, target = (np.array([len(ids) + 1 for ids in tokenizer.encode_many(side)]) for side in sides)
    for budget, limit in ((2048, 0.025), (4096, 0.035), (8192, 0.05)):
        groups = make_batches(source, target, budget)
        positions = sum(len(rows) * int(source[rows].max() + target[rows].max()) for rows in groups)
        assert 1 - int(source.sum() + target.sum()) / positions < limit
        assert len(groups) < 1.1 * np.maximum(source, target).sum() / budget


def make_examples(sizes: list[tuple[int, int]]) -> list[Example]:
    """Distinct examples of these sizes: each repeats its own id."""
    return [Example([4 + n] * source, [4 + n] * target) for n, (source, target) in enumerate(sizes)]
