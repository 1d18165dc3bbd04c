"""Windows of running text, from a stream of ids in arbitrary chunks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.batch import RaggedArray, collate_windows
from attendo.data.lm_text import cut_contiguous_windows, cut_strided_windows
from attendo.text import BOS, PAD


def list_rows(parts: list[RaggedArray]) -> list[list[int]]:
    return [part[number] for part in parts for number in range(len(part))]


def split_ids(length: int, cuts: list[int]) -> list[np.ndarray]:
    ids = np.arange(100, 100 + length, dtype=np.int32)
    return np.split(ids, sorted(cut % (length + 1) for cut in cuts))


lengths = st.integers(0, 60)
cuts = st.lists(st.integers(0, 100), max_size=5)


@given(lengths, cuts, st.integers(2, 9), st.integers(1, 9))
def test_windows_start_every_stride_and_the_last_ends_with_the_text(
    length: int, cuts: list[int], window: int, stride: int
) -> None:
    stride = min(stride, window)
    found = list_rows(list(cut_strided_windows(split_ids(length, cuts), window, stride)))
    begins = list(range(0, length - window + 1, stride))
    if begins and begins[-1] + window < length:
        begins.append(length - window)
    assert found == [list(range(100 + begin, 100 + begin + window)) for begin in begins]


@given(lengths, cuts, st.integers(2, 9))
def test_contiguous_windows_predict_each_token_once(length: int, cuts: list[int], window: int) -> None:
    found = list_rows(list(cut_contiguous_windows(split_ids(length, cuts), window)))
    assert [token for row in found for token in row[1:]] == list(range(101, 100 + length))
    assert all(len(row) == window for row in found[:-1])
    assert all(row == list(range(row[0], row[0] + len(row))) and 2 <= len(row) <= window for row in found)


def test_labels_are_the_window_and_inputs_are_shifted_by_bos() -> None:
    batch = collate_windows(RaggedArray.from_lists([[5, 6, 7], [8, 9]]), (3, 4))
    assert batch.source_ids.shape == (2, 0)
    assert batch.source_mask is None
    assert batch.target_ids.tolist() == [[BOS, 5, 6], [BOS, 8, PAD]]
    assert batch.labels.tolist() == [[5, 6, 7], [8, 9, PAD]]
    assert (batch.tokens, batch.source_tokens, batch.positions, batch.padding) == (5, 0, 6, 1)
    assert batch.numbers == (3, 4)


def test_a_given_first_token_is_not_predicted() -> None:
    batch = collate_windows(RaggedArray.from_lists([[5, 6, 7], [8, 9]]), first_is_given=True)
    assert batch.target_ids.tolist() == [[BOS, 5, 6], [BOS, 8, PAD]]
    assert batch.labels.tolist() == [[PAD, 6, 7], [PAD, 9, PAD]]
    assert batch.tokens == int((batch.labels != PAD).sum()) == 3


@pytest.mark.parametrize("world", [1, 2, 3])
def test_shards_of_windows_have_all_tokens(world: int) -> None:
    batch = collate_windows(RaggedArray.from_lists([[5, 6, 7], [8, 9, 10]]), (0, 1))
    parts = [batch.shard(rank, world) for rank in range(world)]
    assert sum(part.tokens for part in parts) == batch.tokens
    assert torch.equal(batch.repeat(2).labels, torch.cat((batch.labels, batch.labels)))
