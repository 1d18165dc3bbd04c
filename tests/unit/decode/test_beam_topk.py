"""The top-k functions of beam search agree with torch.topk and argmax."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attendo.decode.beam import argmax_rows, beam_topk, topk_by_chunks


def random_scores(width: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scores of three sentences, and a number to add to each row."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, width, size, generator=generator), torch.randn(3, width, generator=generator)


@given(width=st.integers(1, 3), size=st.integers(1, 1500), seed=st.integers(0, 99), count=st.integers(1, 5))
def test_chunked_topk_equals_topk(width: int, size: int, seed: int, count: int) -> None:
    scores, row_scores = random_scores(width, size, seed)
    count = min(count, width * -(-size // 256))
    values, indices = topk_by_chunks(scores, row_scores, count)
    expected = (scores + row_scores[..., None]).flatten(1)
    assert torch.equal(values, expected.topk(count).values)
    assert torch.equal(expected.gather(1, indices), values)


@pytest.mark.parametrize("size", [5, 4096, 20_001])
def test_beam_topk_returns_values_and_their_indices(size: int) -> None:
    scores, row_scores = random_scores(4, size, seed=size)
    values, indices = beam_topk(scores, row_scores, 5)
    expected = (scores + row_scores[..., None]).flatten(1)
    assert torch.equal(expected.gather(1, indices), values)
    assert torch.equal(values, expected.topk(5).values)


def test_beam_topk_with_one_finite_score_returns_valid_indices() -> None:
    scores = torch.full((2, 2, 2500), float("-inf"))
    scores[:, 1, 2499] = -1.0
    values, indices = beam_topk(scores, torch.zeros(2, 2), 4)
    assert values.tolist() == [[-1.0, *[float("-inf")] * 3]] * 2
    assert indices[:, 0].tolist() == [4999, 4999]
    assert ((indices >= 0) & (indices < 5000)).all()


@given(rows=st.integers(1, 40), size=st.integers(1, 5000), kinds=st.integers(1, 9), seed=st.integers(0, 99))
def test_argmax_rows_returns_the_first_of_equal_values(rows: int, size: int, kinds: int, seed: int) -> None:
    scores = torch.randint(kinds, (rows, size), generator=torch.Generator().manual_seed(seed)).float()
    scores[0] = float("-inf")
    scores[-1, -1] = kinds
    first = [row.index(max(row)) for row in scores.tolist()]
    assert argmax_rows(scores).tolist() == first
