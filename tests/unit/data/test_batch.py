"""Sentences laid side by side."""

import pytest
import torch

from attendo.data.batch import Example, collate, collate_sources
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD


def test_short_rows_are_filled_on_the_right_and_the_mask_tells_tokens_from_padding() -> None:
    batch = collate([Example([7, 8, 9], [5]), Example([6], [5, 4])])
    assert batch.source_ids.tolist() == [[7, 8, 9, EOS], [6, EOS, PAD, PAD]]
    assert batch.source_mask is not None
    assert batch.source_mask.tolist() == [[True, True, True, True], [True, True, False, False]]
    assert batch.target_ids.tolist() == [[BOS, 5, PAD], [BOS, 5, 4]]
    assert batch.labels.tolist() == [[5, EOS, PAD], [5, 4, EOS]]


def test_there_is_no_mask_where_no_source_is_short() -> None:
    batch = collate([Example([7, 8], [5]), Example([6, 6], [5, 4, 9])])
    assert batch.source_mask is None


def test_an_id_that_equals_pad_inside_a_sentence_stays_visible() -> None:
    _, mask = collate_sources([[7, PAD, 8], [7]])
    assert mask is not None
    assert mask.tolist() == [[True, True, True, True], [True, True, False, False]]


def test_sources_alone_are_laid_out_as_in_a_whole_batch() -> None:
    examples = [Example([7, 8, 9], [5]), Example([6], [5, 4])]
    batch = collate(examples)
    ids, mask = collate_sources([example.source for example in examples])
    assert torch.equal(ids, batch.source_ids)
    assert mask is not None
    assert batch.source_mask is not None
    assert torch.equal(mask, batch.source_mask)


def test_tokens_count_labels_and_positions_count_all() -> None:
    batch = collate([Example([7, 8, 9], [5]), Example([6], [5, 4])])
    assert batch.tokens == 5
    assert batch.positions == 2 * 4 + 2 * 3


def test_an_empty_sentence_is_its_control_tokens() -> None:
    batch = collate([Example([], [])])
    assert (batch.source_ids.tolist(), batch.target_ids.tolist(), batch.labels.tolist()) == ([[EOS]], [[BOS]], [[EOS]])


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one sentence"):
        collate([])


def test_the_length_of_an_example_is_that_of_its_longer_side_in_a_batch() -> None:
    example = Example([7, 8, 9], [5])
    assert example.length == collate([example]).source_ids.size(1)
    assert Example([7], [5, 5]).length == 3


def test_a_batch_moves_whole_with_or_without_a_mask() -> None:
    for examples in ([Example([7], [5])], [Example([7], [5]), Example([7, 8], [5])]):
        batch = collate(examples).to("meta")
        assert {batch.source_ids.device.type, batch.target_ids.device.type, batch.labels.device.type} == {"meta"}
        assert (batch.source_mask is None) == (len(examples) == 1)
