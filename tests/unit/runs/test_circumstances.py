"""By what a checkpoint knows the run it belongs to."""

from typing import Any

import pytest
import torch

from attendo.runs.config import RunConfig
from attendo.runs.run_folder import checkpoint_facts, learning_relevant_config
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed


@pytest.mark.parametrize(("changed", "same"), [({"sharding": "full"}, True), ({"steps": 7}, False)])
def test_a_run_is_another_one_when_it_learns_otherwise_not_when_others_hold_its_weights(
    changed: dict[str, Any], same: bool
) -> None:
    assert (known_by() == known_by(**changed)) is same


def test_a_setting_that_did_not_exist_then_changes_nothing() -> None:
    class Later(TrainConfig):
        newer: int = 3

    class LaterRun(RunConfig):
        train: Later = Later()

    values: dict[str, Any] = {"data": {"source": "a", "target": "b"}, "preset": "tiny", "train": {"steps": 7}}
    assert learning_relevant_config(LaterRun(**values)) == learning_relevant_config(RunConfig(**values))
    values["train"]["newer"] = 4
    assert learning_relevant_config(LaterRun(**values))["train"] == {"steps": 7, "newer": 4, "peak_lr": 1e-3}


def known_by(**train: Any) -> str:
    config = RunConfig(data={"source": "a", "target": "b"}, preset="tiny", train=train)
    found: str = checkpoint_facts(config, "", torch.device("cpu"), Distributed())["config_sha256"]
    return found
