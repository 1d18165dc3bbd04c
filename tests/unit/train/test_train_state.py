"""The training state: counters, data position and best score."""

import json

import pytest
from error_codes import has_code

from attendo.data.sampler import Position
from attendo.errors import ModelError
from attendo.train.checkpoint import TrainState


def test_the_state_round_trips_as_json() -> None:
    state = TrainState(Position(3, 1, 4), 10**12, 0.1 + 0.2, 500, 2.2250738585072014e-308, 400, "chrf", 1, 7, 2, 0.1)
    assert TrainState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert TrainState.from_json(json.loads(json.dumps(TrainState().to_json()))) == TrainState()


@pytest.mark.parametrize("by", ["loss", "word_error_rate"])
def test_lower_is_better_for_losses_and_error_rates(by: str) -> None:
    first, best = TrainState().after_validation(5, 2.0, by, loss=2.0)
    assert (best, first.best, first.best_step, first.since_best, first.validated) == (True, 2.0, 5, 0, 5)
    second, best = first.after_validation(10, 2.0, by, loss=2.0)
    assert (best, second.best, second.best_step, second.since_best, second.validated) == (False, 2.0, 5, 1, 10)
    third, best = second.after_validation(15, 1.9, by, loss=1.9)
    assert (best, third.best_step, third.since_best) == (True, 15, 0)


@pytest.mark.parametrize("by", ["bleu", "chrf", "exact_match"])
def test_higher_is_better_for_scores(by: str) -> None:
    first, _ = TrainState().after_validation(5, 2.0, by, loss=2.0)
    assert first.after_validation(10, 2.1, by, loss=2.1)[1]
    assert not first.after_validation(10, 1.9, by, loss=1.9)[1]


def test_scores_of_different_metrics_are_not_compared() -> None:
    by_loss, _ = TrainState().after_validation(5, 1.2, "loss", loss=1.2)
    by_chrf, best = by_loss.after_validation(10, 0.5, "chrf", loss=0.5)
    assert (best, by_chrf.best, by_chrf.best_step, by_chrf.best_by) == (True, 0.5, 10, "chrf")
    assert not by_chrf.after_validation(15, 0.4, "chrf", loss=0.4)[1]


def test_a_state_without_best_by_is_compared_with_any_metric() -> None:
    content = {**TrainState().after_validation(5, 2.0, "loss", loss=2.0)[0].to_json()}
    del content["best_by"]
    assert not TrainState.from_json(content).after_validation(10, 2.1, "loss", loss=2.1)[1]


def test_a_nan_loss_is_never_better() -> None:
    first, _ = TrainState().after_validation(5, 2.0, "loss", loss=2.0)
    assert not first.after_validation(10, float("nan"), "loss", loss=float("nan"))[1]


@pytest.mark.parametrize(("by", "score"), [("chrf", 0.0), ("word_error_rate", 1.0)])
def test_the_lower_loss_decides_between_equal_scores(by: str, score: float) -> None:
    first, _ = TrainState().after_validation(5, score, by, loss=6.5)
    second, best = first.after_validation(10, score, by, loss=6.0)
    assert (best, second.best, second.best_loss, second.best_step, second.since_best) == (True, score, 6.0, 10, 0)
    third, best = second.after_validation(15, score, by, loss=6.0)
    assert (best, third.best_step, third.since_best) == (False, 10, 1)
    assert not third.after_validation(20, score, by, loss=float("nan"))[1]


def test_a_better_score_wins_despite_a_higher_loss() -> None:
    first, _ = TrainState().after_validation(5, 20.0, "chrf", loss=2.0)
    assert first.after_validation(10, 21.0, "chrf", loss=3.0)[1]
    assert not first.after_validation(10, 19.0, "chrf", loss=1.0)[1]


def test_without_best_loss_the_later_equal_score_wins() -> None:
    content = {**TrainState().after_validation(5, 0.0, "chrf", loss=2.0)[0].to_json()}
    del content["best_loss"]
    resumed = TrainState.from_json(content)
    assert resumed.best_loss is None
    assert resumed.after_validation(10, 0.0, "chrf", loss=1.9)[1]
    by_loss = TrainState.from_json({**content, "best": 2.0, "best_by": "loss"})
    assert not by_loss.after_validation(10, 2.0, "loss", loss=2.0)[1]


@pytest.mark.parametrize("content", [{}, {"position": {"epoch": 1, "shard": 2}}, {"position": {}, "speed": 3}])
def test_a_state_of_another_version_is_rejected(content: dict[str, object]) -> None:
    with pytest.raises(ModelError, check=has_code("checkpoint_state_invalid")):
        TrainState.from_json(content)
