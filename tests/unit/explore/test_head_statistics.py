"""Attention statistics equal their formulas, and padding is ignored."""

import math

import pytest
import torch

from attendo.explore.head_stats import STATISTICS, AttentionExtent, sum_statistics


def map_statistics(weights: list[list[float]], special: list[bool], causal: bool = False) -> dict[str, float]:
    """The means over the rows of one head."""
    rows, columns = len(weights), len(weights[0])
    found = sum_statistics(
        torch.tensor(weights)[None, None], AttentionExtent([rows], [columns], torch.tensor([special]), causal)
    )
    assert tuple(found) == STATISTICS
    return {name: float(values[0]) / count for name, (values, count) in found.items() if count}


def test_uniform_attention_has_the_largest_entropy() -> None:
    found = map_statistics([[0.25] * 4] * 4, [False] * 4)
    assert found["entropy"] == pytest.approx(math.log(4))
    assert found["relative_entropy"] == pytest.approx(1)
    assert found["largest"] == 0.25


def test_attention_to_one_token_has_no_entropy() -> None:
    found = map_statistics([[1.0, 0.0], [0.0, 1.0]], [False, True])
    assert (found["entropy"], found["relative_entropy"], found["largest"]) == (0, 0, 1)
    assert found["special"] == 0.5


def test_distance_and_diagonality_use_the_diagonal_of_the_map() -> None:
    # Two rows over four columns: the diagonal passes columns 0 and 2.
    found = map_statistics([[0.5, 0.25, 0.25, 0.0], [0.5, 0.0, 0.25, 0.25]], [False] * 4)
    assert found["distance"] == pytest.approx((0.25 + 0.5 + 1.0 + 0.25) / 2)
    assert found["diagonality"] == pytest.approx((0.75 + 0.5) / 2)


def test_rounding_does_not_change_diagonality() -> None:
    rows, columns = 49, 7
    weights = torch.zeros(rows, columns)
    for row in range(rows):
        beside = row * columns // rows - 1 if row * columns % rows == 0 else row * columns // rows
        weights[row, max(0, beside)] = 1.0
    assert map_statistics(weights.tolist(), [False] * columns)["diagonality"] == 1


def test_relative_entropy_skips_rows_with_one_visible_token() -> None:
    found = map_statistics([[1.0, 0.0], [0.5, 0.5]], [True, False], causal=True)
    assert found["entropy"] == pytest.approx(math.log(2) / 2)
    assert found["relative_entropy"] == pytest.approx(1)
    assert found["special"] == pytest.approx(0.75)
    assert "relative_entropy" not in map_statistics([[1.0]], [True], causal=True)


def test_padded_rows_and_columns_change_nothing(generator: torch.Generator) -> None:
    weights = torch.randn(1, 3, 4, 5, generator=generator).softmax(-1)
    special = torch.tensor([[False] * 4 + [True]])
    alone = sum_statistics(weights, AttentionExtent([4], [5], special, causal=False))
    padded = torch.full((2, 3, 6, 9), 1 / 9)  # rows of padding may have any values
    padded[0, :, :4] = 0
    padded[0, :, :4, :5] = weights[0]
    more = torch.zeros(2, 9, dtype=torch.bool)
    more[0, 4] = True
    found = sum_statistics(padded, AttentionExtent([4, 0], [5, 9], more, causal=False))
    for name, (values, count) in alone.items():
        assert count == found[name][1] == 4
        torch.testing.assert_close(found[name][0], values, atol=1e-12, rtol=0)
