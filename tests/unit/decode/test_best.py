"""The largest of many numbers: those of topk."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from attendo.decode.best import best_by_chunks, best_of


@given(size=some.integers(1, 1500), seed=some.integers(0, 99), count=some.integers(1, 5))
def test_chunks_hold_what_topk_finds(size: int, seed: int, count: int) -> None:
    numbers = torch.randn(3, size, generator=torch.Generator().manual_seed(seed))
    count = min(count, -(-size // 256))
    values, places = best_by_chunks(numbers, count)
    assert torch.equal(values, numbers.topk(count).values)
    assert torch.equal(numbers.gather(1, places), values)


@pytest.mark.parametrize("size", [5, 4096, 20_001])
def test_the_best_stand_where_they_are_said_to(size: int) -> None:
    numbers = torch.randn(4, size, generator=torch.Generator().manual_seed(size))
    values, places = best_of(numbers, 5)
    assert torch.equal(numbers.gather(1, places), values)
    assert torch.equal(values, numbers.topk(5).values)


def test_where_nearly_all_is_forbidden_nothing_is_invented() -> None:
    numbers = torch.full((2, 5000), float("-inf"))
    numbers[:, 4999] = -1.0
    values, places = best_of(numbers, 4)
    assert values.tolist() == [[-1.0, *[float("-inf")] * 3]] * 2
    assert places[:, 0].tolist() == [4999, 4999]
    assert ((places >= 0) & (places < 5000)).all()
