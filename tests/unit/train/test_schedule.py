"""Learning rates by step."""

import math

import pytest

from attendo.train.schedule import inverse_square_root


@pytest.mark.parametrize(
    ("step", "expected"), [(1, 0.002 / 400), (200, 0.001), (399, 0.002 * 399 / 400), (400, 0.002), (1600, 0.001)]
)
def test_the_rate_climbs_to_its_peak_and_has_halved_after_four_times_as_many_steps(step: int, expected: float) -> None:
    assert inverse_square_root(step, peak=0.002, warmup=400) == pytest.approx(expected)


def test_the_rate_is_the_formula_of_the_paper() -> None:
    d_model, warmup = 512, 4000
    peak = d_model**-0.5 * warmup**-0.5
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert inverse_square_root(step, peak, warmup) == pytest.approx(paper)


@pytest.mark.parametrize("warmup", [0, 1])
def test_without_a_warm_up_the_first_step_has_the_peak(warmup: int) -> None:
    assert inverse_square_root(1, 0.5, warmup) == 0.5
    assert inverse_square_root(9, 0.5, warmup) == pytest.approx(0.5 / math.sqrt(9))
