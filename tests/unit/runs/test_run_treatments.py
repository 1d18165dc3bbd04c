"""Runs with treatments of exposure bias: resume bit for bit, kinds that cannot use them, checks of the doctor."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from test_run import CPU, begin_run, build_run, flat_weights, make_config, train_run

from attendo.doctor.checks import examine_network
from attendo.errors import UsageError
from attendo.runs.run import Run

TREATMENTS: dict[str, dict[str, Any]] = {
    "input noise": {"input_noise": 0.3},
    "schedule": {"scheduled_sampling": "schedule", "sampling_start": 0.25, "sampling_decay": 1.0},
    "confidence": {"scheduled_sampling": "confidence", "sampling_start": 0.25, "sampling_thresholds": (0.05, 0.15)},
}


@pytest.fixture(scope="module")
def plain_weights(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """The weights of the same run without a treatment."""
    folder = tmp_path_factory.mktemp("plain")
    return flat_weights(train_run(make_config(folder), folder / "run"))


@pytest.mark.parametrize("name", TREATMENTS)
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, name: str, plain_weights: torch.Tensor) -> None:
    config = make_config(tmp_path, train=TREATMENTS[name])
    complete = train_run(config, tmp_path / "whole")
    stopped = begin_run(config, tmp_path / "stopped")
    list(islice(stopped.train(stop_at=3), 5))
    stopped.save()
    again = build_run(Run.resume(stopped.folder, CPU))
    assert again.trainer.step == 3
    list(again.train())
    again.finish()
    assert torch.equal(flat_weights(again), flat_weights(complete))
    assert not torch.equal(flat_weights(complete), plain_weights)


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
@pytest.mark.parametrize("name", TREATMENTS)
def test_networks_that_predict_all_tokens_at_once_reject_it(tmp_path: Path, kind: str, name: str) -> None:
    option, value = next(iter(TREATMENTS[name].items()))
    rejected = has_code("treatment_needs_autoregressive", option=option, value=value, kind=kind)
    with pytest.raises(UsageError, check=rejected):
        make_config(tmp_path, model={"kind": kind}, train=TREATMENTS[name])


@pytest.mark.parametrize("name", TREATMENTS)
def test_the_doctor_finds_no_fault(tmp_path: Path, name: str) -> None:
    run = begin_run(make_config(tmp_path, train=TREATMENTS[name]), tmp_path / "run")
    assert [each for each in examine_network(run, quick=True) if each.level == "fault"] == []
