"""The facts by which a checkpoint identifies its run."""

from typing import Any

import pytest
import torch

from attendo.runs.config import RunConfig
from attendo.runs.run_folder import checkpoint_facts, learning_relevant_config
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"sharding": "full", "cpu_offload": True}, True),
        ({"activation_checkpointing": True, "async_checkpoints": True}, True),
        ({"steps": 7}, False),
    ],
)
def test_the_config_hash_ignores_placement_but_not_steps(changed: dict[str, Any], same: bool) -> None:
    assert (config_hash() == config_hash(**changed)) is same


def test_a_new_setting_with_its_default_is_ignored() -> None:
    class Later(TrainConfig):
        newer: int = 3

    class LaterRun(RunConfig):
        train: Later = Later()

    values: dict[str, Any] = {"data": {"source": "a", "target": "b"}, "preset": "tiny", "train": {"steps": 7}}
    assert learning_relevant_config(LaterRun(**values)) == learning_relevant_config(RunConfig(**values))
    values["train"]["newer"] = 4
    assert learning_relevant_config(LaterRun(**values))["train"] == {"steps": 7, "newer": 4, "peak_lr": 1e-3}


def config_hash(**train: Any) -> str:
    config = RunConfig(data={"source": "a", "target": "b"}, preset="tiny", train=train)
    found: str = checkpoint_facts(config, "", torch.device("cpu"), Distributed())["config_sha256"]
    return found
