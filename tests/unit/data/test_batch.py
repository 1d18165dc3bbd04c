"""Batches: padding, masks, counts and shards."""

import pytest
import torch
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.batch import Batch, Example, RaggedArray, collate, collate_sequences, collate_sources
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD


def test_rows_are_padded_right_and_the_mask_marks_tokens() -> None:
    batch = collate([Example([7, 8, 9], [5]), Example([6], [5, 4])])
    assert batch.source_ids.tolist() == [[7, 8, 9, EOS], [6, EOS, PAD, PAD]]
    assert batch.source_mask is not None
    assert batch.source_mask.tolist() == [[True, True, True, True], [True, True, False, False]]
    assert batch.target_ids.tolist() == [[BOS, 5, PAD], [BOS, 5, 4]]
    assert batch.labels.tolist() == [[5, EOS, PAD], [5, 4, EOS]]


def test_sources_of_equal_length_have_no_mask() -> None:
    batch = collate([Example([7, 8], [5]), Example([6, 6], [5, 4, 9])])
    assert batch.source_mask is None


def test_an_id_that_equals_pad_inside_a_sentence_stays_visible() -> None:
    _, mask = collate_sources([[7, PAD, 8], [7]])
    assert mask is not None
    assert mask.tolist() == [[True, True, True, True], [True, True, False, False]]


def test_collate_sources_matches_collate() -> None:
    examples = [Example([7, 8, 9], [5]), Example([6], [5, 4])]
    batch = collate(examples)
    ids, mask = collate_sources([example.source for example in examples])
    assert torch.equal(ids, batch.source_ids)
    assert mask is not None
    assert batch.source_mask is not None
    assert torch.equal(mask, batch.source_mask)


def test_tokens_count_labels_and_positions_count_padding() -> None:
    batch = collate([Example([7, 8, 9], [5]), Example([6], [5, 4])])
    assert batch.tokens == 5
    assert batch.positions == 2 * 4 + 2 * 3


def test_an_empty_sentence_is_its_control_tokens() -> None:
    batch = collate([Example([], [])])
    assert (batch.source_ids.tolist(), batch.target_ids.tolist(), batch.labels.tolist()) == ([[EOS]], [[BOS]], [[EOS]])


def test_an_empty_batch_is_a_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("empty_batch")):
        collate([])


def test_example_length_is_the_longer_padded_side() -> None:
    example = Example([7, 8, 9], [5])
    assert example.length == collate([example]).source_ids.size(1)
    assert Example([7], [5, 5]).length == 3


def test_to_moves_all_tensors() -> None:
    for examples in ([Example([7], [5])], [Example([7], [5]), Example([7, 8], [5])]):
        batch = collate(examples).to("meta")
        assert {batch.source_ids.device.type, batch.target_ids.device.type, batch.labels.device.type} == {"meta"}
        assert (batch.source_mask is None) == (len(examples) == 1)


ids = st.lists(st.integers(4, 60), max_size=7)
pairs_of_ids = st.lists(st.tuples(ids, ids), min_size=1, max_size=9)


@given(pairs_of_ids)
def test_collate_matches_row_by_row_padding(pairs: list[tuple[list[int], list[int]]]) -> None:
    examples = [Example(*pair) for pair in pairs]
    batch = collate(examples)
    sources = [[*example.source, EOS] for example in examples]
    assert batch.source_ids.tolist() == pad_rows(sources)
    assert batch.target_ids.tolist() == pad_rows([[BOS, *example.target] for example in examples])
    assert batch.labels.tolist() == pad_rows([[*example.target, EOS] for example in examples])
    equal = len({len(row) for row in sources}) == 1
    assert (batch.source_mask is None) == equal
    if batch.source_mask is not None:
        assert batch.source_mask.tolist() == [[bool(each) for each in row] for row in pad_rows(sources)]


@given(pairs_of_ids)
def test_tokens_and_padding_sum_to_the_positions(pairs: list[tuple[list[int], list[int]]]) -> None:
    examples = [Example(*pair) for pair in pairs]
    batch = collate(examples)
    assert batch.tokens == int((batch.labels != PAD).sum())
    padding = int((batch.source_ids == PAD).sum() + (batch.target_ids == PAD).sum())
    assert (batch.padding, batch.source_tokens) == (padding, batch.positions - padding - batch.tokens)


def test_a_batch_made_directly_counts_its_tokens() -> None:
    batch = collate([Example([7, 8, 9], [5]), Example([6], [5, 4])])
    again = Batch(batch.source_ids, batch.source_mask, batch.target_ids, batch.labels)
    assert (again.tokens, again.padding, again.numbers) == (batch.tokens, batch.padding, ())


def test_moving_a_batch_keeps_counts_and_numbers() -> None:
    batch = collate_sequences(
        RaggedArray.from_lists([[7, 8], [9]]), RaggedArray.from_lists([[5], [5]]), numbers=(40, 2)
    )
    moved = batch.to("meta")  # a meta tensor cannot be counted
    assert (moved.tokens, moved.padding, moved.numbers) == (4, 1, (40, 2))


@given(pairs_of_ids, st.integers(1, 12))
def test_shards_of_all_processes_form_the_batch(pairs: list[tuple[list[int], list[int]]], world: int) -> None:
    sides = (
        RaggedArray.from_lists([source for source, _ in pairs]),
        RaggedArray.from_lists([target for _, target in pairs]),
    )
    batch = collate_sequences(*sides, numbers=tuple(range(len(pairs))))
    shares = [batch.shard(rank, world) for rank in range(world)]
    assert sum(share.tokens for share in shares) == batch.tokens
    assert sorted(number for share in shares for number in share.numbers) == list(range(len(pairs)))
    for rank, share in enumerate(shares):
        assert share.tokens == int((share.labels != PAD).sum())
        assert share.labels.size(1) == batch.labels.size(1)
        if share.numbers:
            rows = list(range(rank, len(pairs), world))
            assert share.numbers == tuple(rows)
            assert torch.equal(share.source_ids, batch.source_ids[rows])
            assert torch.equal(share.target_ids, batch.target_ids[rows])
            assert (share.source_mask is None) == (batch.source_mask is None)
        else:
            assert (share.source_ids.size(0), share.tokens) == (1, 0)


def pad_rows(rows: list[list[int]]) -> list[list[int]]:
    width = max(map(len, rows))
    return [[*row, *[PAD] * (width - len(row))] for row in rows]
