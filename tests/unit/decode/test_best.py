"""The largest of many numbers: those of topk."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor

from attendo.decode.beam import argmax_rows, beam_topk, chunked_topk


def numbers(width: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Of three sentences: those of each row, and what is added to all of a row."""
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(3, width, size, generator=dice), torch.randn(3, width, generator=dice)


@given(width=some.integers(1, 3), size=some.integers(1, 1500), seed=some.integers(0, 99), count=some.integers(1, 5))
def test_chunks_hold_what_topk_finds(width: int, size: int, seed: int, count: int) -> None:
    each, added = numbers(width, size, seed)
    count = min(count, width * -(-size // 256))
    values, places = chunked_topk(each, added, count)
    all_of_them = (each + added[..., None]).flatten(1)
    assert torch.equal(values, all_of_them.topk(count).values)
    assert torch.equal(all_of_them.gather(1, places), values)


@pytest.mark.parametrize("size", [5, 4096, 20_001])
def test_the_best_stand_where_they_are_said_to(size: int) -> None:
    each, added = numbers(4, size, seed=size)
    values, places = beam_topk(each, added, 5)
    all_of_them = (each + added[..., None]).flatten(1)
    assert torch.equal(all_of_them.gather(1, places), values)
    assert torch.equal(values, all_of_them.topk(5).values)


def test_where_nearly_all_is_forbidden_nothing_is_invented() -> None:
    each = torch.full((2, 2, 2500), float("-inf"))
    each[:, 1, 2499] = -1.0
    values, places = beam_topk(each, torch.zeros(2, 2), 4)
    assert values.tolist() == [[-1.0, *[float("-inf")] * 3]] * 2
    assert places[:, 0].tolist() == [4999, 4999]
    assert ((places >= 0) & (places < 5000)).all()


@given(rows=some.integers(1, 40), size=some.integers(1, 5000), kinds=some.integers(1, 9), seed=some.integers(0, 99))
def test_of_equals_the_first_is_the_highest(rows: int, size: int, kinds: int, seed: int) -> None:
    each = torch.randint(kinds, (rows, size), generator=torch.Generator().manual_seed(seed)).float()
    each[0] = float("-inf")
    each[-1, -1] = kinds
    first = [row.index(max(row)) for row in each.tolist()]
    assert argmax_rows(each).tolist() == first
