"""Sequences of different length in one flat array."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.batch import RaggedArray

lists = st.lists(st.lists(st.integers(0, 70_000), max_size=5), max_size=8)


@given(lists)
def test_sequences_round_trip(content: list[list[int]]) -> None:
    sequences = RaggedArray.from_lists(content)
    assert [sequences[row] for row in range(len(sequences))] == content
    assert sequences.lengths.tolist() == [len(each) for each in content]


@given(lists, st.data())
def test_take_selects_rows_in_any_order(content: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(content) - 1), max_size=10)) if content else []
    taken = RaggedArray.from_lists(content).take(np.array(rows, np.int64))
    assert [taken[row] for row in range(len(taken))] == [content[row] for row in rows]


@given(lists, lists)
def test_concatenate_and_slice_rows_are_inverse(first: list[list[int]], second: list[list[int]]) -> None:
    joined = RaggedArray.concatenate([RaggedArray.from_lists(first), RaggedArray.from_lists(second)])
    assert [joined[row] for row in range(len(joined))] == first + second
    part = joined.slice_rows(len(first), len(first) + len(second))
    assert [part[row] for row in range(len(part))] == second


def test_concatenating_nothing_is_empty() -> None:
    assert len(RaggedArray.concatenate([])) == 0


def test_a_missing_row_raises_index_error() -> None:
    with pytest.raises(IndexError):
        RaggedArray.from_lists([[1]])[1]
