"""Learning rates by step, compared with their formulas."""

import math
from typing import Any

import pytest

from attendo.train.config import TrainConfig
from attendo.train.optimizer import learning_rate, peak_rate

STEPS, WARMUP, PEAK = 1000, 100, 0.002


def rate(step: int, schedule: str, **changes: Any) -> float:
    settings = {"steps": STEPS, "warmup": WARMUP, "peak_lr": PEAK, **changes}
    return learning_rate(step, TrainConfig(schedule=schedule, **settings), d_model=512)


@pytest.mark.parametrize("schedule", ["inverse_square_root", "cosine", "linear", "constant"])
@pytest.mark.parametrize("step", [1, 50, 99])
def test_warm_up_is_linear(schedule: str, step: int) -> None:
    assert rate(step, schedule) == pytest.approx(PEAK * step / WARMUP)
    assert rate(WARMUP, schedule) == pytest.approx(PEAK)


@pytest.mark.parametrize("step", [100, 101, 250, 999, 1000])
def test_each_schedule_matches_its_formula(step: int) -> None:
    progress = (step - WARMUP) / (STEPS - WARMUP)
    assert rate(step, "constant") == PEAK
    assert rate(step, "inverse_square_root") == pytest.approx(PEAK * math.sqrt(WARMUP / step))
    assert rate(step, "linear", final_lr=0.1) == pytest.approx(PEAK * (1 - 0.9 * progress))
    cosine = PEAK * (0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2)
    assert rate(step, "cosine", final_lr=0.1) == pytest.approx(cosine)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_last_step_and_later_steps_have_the_final_rate(schedule: str) -> None:
    assert rate(STEPS, schedule) == pytest.approx(0.0)
    for step in (STEPS, STEPS + 1, 3 * STEPS):
        assert rate(step, schedule, final_lr=0.25) == pytest.approx(PEAK / 4)


def test_noam_matches_the_formula_of_the_paper() -> None:
    settings = TrainConfig(schedule="noam", warmup=4000)
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, settings, 512) == pytest.approx(paper)
    assert peak_rate(settings, 512) == pytest.approx((512 * 4000) ** -0.5)


@pytest.mark.parametrize("schedule", ["inverse_square_root", "cosine", "linear", "constant"])
def test_without_warm_up_the_first_step_has_nearly_the_peak_rate(schedule: str) -> None:
    assert rate(1, schedule, warmup=0) == pytest.approx(PEAK, rel=3e-3)


def test_warm_up_can_be_as_long_as_the_run() -> None:
    for schedule in ("cosine", "linear"):
        assert rate(WARMUP, schedule, steps=WARMUP) == PEAK
        assert rate(WARMUP - 1, schedule, steps=WARMUP - 1) < PEAK


def test_the_default_peak_rate_is_0_001() -> None:
    assert peak_rate(TrainConfig(), 512) == 1e-3
    assert peak_rate(TrainConfig(peak_lr=0.5), 512) == 0.5
