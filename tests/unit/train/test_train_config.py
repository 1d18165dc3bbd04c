"""Training settings."""

from typing import Any

import pytest
from error_codes import fragment

from attendo.errors import UsageError
from attendo.train.config import TrainConfig


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"batch_tokens": 0}, "batch_tokens"),
        ({"accumulate": 0}, "accumulate"),
        ({"peak_lr": 0}, "peak_lr"),
        ({"warmup": -1}, "warmup"),
        ({"label_smoothing": 1}, "label_smoothing"),
        ({"ema": 1}, "ema"),
        ({"clip_norm": -1}, "clip_norm"),
        ({"precision": "int8"}, "precision"),
        ({"metrics": ["rouge"]}, "metrics"),
        ({"schedule": "noam", "peak_lr": 0.1}, fragment("noam_with_peak_lr")),
        ({"schedule": "noam", "warmup": 0}, fragment("noam_without_warmup")),
        ({"schedule": "constant", "final_lr": 0.1}, fragment("final_lr_unused", schedule="constant")),
        ({"sharding": "full", "compile": "on"}, fragment("sharding_with_compile")),
        ({"sharding": "full", "compile": "blocks"}, fragment("sharding_with_compile")),
        ({"setps": 3}, "did you mean steps?"),
    ],
)
def test_invalid_settings_are_usage_errors(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        TrainConfig(**wrong)
    assert message in str(caught.value)


def test_the_best_metric_is_computed_once() -> None:
    assert TrainConfig().metrics_to_decode == ()
    assert TrainConfig(best="bleu").metrics_to_decode == ("bleu",)
    assert TrainConfig(metrics=("chrf", "bleu"), best="bleu").metrics_to_decode == ("chrf", "bleu")


def test_averaging_keeps_enough_checkpoints() -> None:
    assert TrainConfig(keep_last=2, average=5).num_checkpoints_to_keep == 2
    assert TrainConfig(keep_last=2, average=5, final="average").num_checkpoints_to_keep == 5
    assert TrainConfig(keep_last=7, average=5, final="average").num_checkpoints_to_keep == 7
