"""Runs with treatments of exposure bias: resume bit for bit, kinds that cannot use them, checks of the doctor."""

import json
import math
import shutil
import tomllib
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from test_run import CPU, begin_run, build_run, flat_weights, make_config, train_run

from attendo.doctor.checks import examine_network
from attendo.errors import UsageError
from attendo.runs.auto_config import DataStats, choose_settings
from attendo.runs.config import RunConfig, to_toml
from attendo.runs.run import Run
from benchmarks.exposure_study.shuffled_risk import make_shuffled_risk

TREATMENTS: dict[str, dict[str, Any]] = {
    "input noise": {"input_noise": 0.3},
    "schedule": {"scheduled_sampling": "schedule", "sampling_start": 0.25, "sampling_decay": 1.0},
    "confidence": {"scheduled_sampling": "confidence", "sampling_start": 0.25, "sampling_thresholds": (0.05, 0.15)},
}


MRT = {"objective": "mrt", "mrt_candidates": 3, "peak_lr": 1e-3}
NGRAMS = {"objective": "ngrams", "peak_lr": 1e-3}
GRAPH = {"kind": "graph", "d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.4, "upsample": 2}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same run without a treatment."""
    folder = tmp_path_factory.mktemp("plain")
    return train_run(make_config(folder), folder / "run")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of kind graph with objective likelihood."""
    folder = tmp_path_factory.mktemp("graph")
    return train_run(make_config(folder, model=GRAPH), folder / "run")


def fine_tune(before: Run, objective: dict[str, Any] = MRT, **changes: Any) -> RunConfig:
    train = before.config.train.replace(**{**objective, **changes})
    return RunConfig(start_from=before.folder / "model", data=before.config.data, train=train)


def make_treated(name: str, folder: Path, plain: Run, graph: Run) -> RunConfig:
    if name == "ngrams":
        return fine_tune(graph, NGRAMS)
    return fine_tune(plain) if name == "mrt" else make_config(folder, train=TREATMENTS[name])


@pytest.mark.parametrize("name", [*TREATMENTS, "mrt", "ngrams"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, name: str, plain: Run, graph: Run) -> None:
    config = make_treated(name, tmp_path, plain, graph)
    complete = train_run(config, tmp_path / "whole")
    stopped = begin_run(config, tmp_path / "stopped")
    list(islice(stopped.train(stop_at=3), 5))
    stopped.save()
    again = build_run(Run.resume(stopped.folder, CPU))
    assert again.trainer.step == 3
    list(again.train())
    again.finish()
    assert torch.equal(flat_weights(again), flat_weights(complete))
    assert not torch.equal(flat_weights(complete), flat_weights(graph if name == "ngrams" else plain))
    lines = [read_steps(each) for each in (complete, again)]
    assert lines[0] == lines[1]


def test_a_control_with_shuffled_risks_resumes_bit_for_bit(tmp_path: Path, plain: Run) -> None:
    def open_run(run: Run) -> Run:
        run.make_risk = make_shuffled_risk
        return build_run(run)

    complete = open_run(Run.begin(fine_tune(plain), tmp_path / "whole", CPU))
    list(complete.train())
    stopped = open_run(Run.begin(fine_tune(plain), tmp_path / "stopped", CPU))
    list(islice(stopped.train(stop_at=3), 5))
    stopped.save()
    again = open_run(Run.resume(stopped.folder, CPU))
    list(again.train())
    assert torch.equal(flat_weights(again), flat_weights(complete))
    assert not torch.equal(flat_weights(complete), flat_weights(train_run(fine_tune(plain), tmp_path / "mrt")))


def read_steps(run: Run) -> list[dict[str, Any]]:
    """Return the reports of steps without times."""
    lines = map(json.loads, (run.folder / "metrics.jsonl").read_text("utf-8").splitlines())
    times = ("seconds", "waited")
    return [
        {name: value for name, value in line.items() if name not in times} for line in lines if line["kind"] == "step"
    ]


def test_reports_of_minimum_risk_training_have_reward_and_entropy(tmp_path: Path, plain: Run) -> None:
    run = train_run(fine_tune(plain), tmp_path / "run")
    steps = read_steps(run)
    assert len(steps) == 4
    assert all(0 <= each["reward"] <= 100 and 0 < each["entropy"] <= math.log(4) for each in steps)
    assert not {"reward", "entropy"} & {name for step in read_steps(plain) for name in step}


def test_minimum_risk_training_needs_a_trained_model(tmp_path: Path, plain: Run) -> None:
    config = make_config(tmp_path, train=MRT)
    with pytest.raises(UsageError, check=has_code("objective_needs_trained_model", objective="mrt")):
        Run.begin(config, tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()
    copy = tmp_path / "resumed"
    shutil.copytree(plain.folder, copy)
    changed = plain.config.replace(train=plain.config.train.replace(**MRT, steps=5))
    with pytest.raises(
        UsageError, check=has_code("objective_needs_trained_model", objective="mrt")
    ):  # its learning rate would stay
        Run.resume(copy, CPU, config=changed)


def test_minimum_risk_training_needs_pairs(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abc " * 100)
    with pytest.raises(UsageError, check=has_code("mrt_needs_pairs")):
        RunConfig(start_from=tmp_path, data={"text": tmp_path / "text"}, train=MRT)


def test_the_rate_of_minimum_risk_training_is_stored(tmp_path: Path, plain: Run) -> None:
    config = fine_tune(plain)
    config = config.replace(train={**config.train.model_dump(exclude_unset=True), "peak_lr": None})
    assert tomllib.loads(to_toml(config))["train"]["peak_lr"] == 1e-5


def test_open_settings_of_minimum_risk_training_are_small_steps() -> None:
    given = {"start_from": "model", "train": {"objective": "mrt"}}
    chosen = {each.name: each.value for each in choose_settings(given, DataStats(10_000, 130_000, 1.0))}
    assert chosen["train.batch_tokens"] == 1024  # about 64 sentences of 13 tokens
    assert (chosen["train.steps"], chosen["train.peak_lr"], chosen["train.warmup"]) == (2000, 1e-5, 0)
    assert chosen["train.schedule"] == "constant"


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
@pytest.mark.parametrize("name", TREATMENTS)
def test_networks_that_predict_all_tokens_at_once_reject_it(tmp_path: Path, kind: str, name: str) -> None:
    option, value = next(iter(TREATMENTS[name].items()))
    rejected = has_code("treatment_needs_autoregressive", option=option, value=value, kind=kind)
    with pytest.raises(UsageError, check=rejected):
        make_config(tmp_path, model={"kind": kind}, train=TREATMENTS[name])


def test_weights_of_another_kind_reject_minimum_risk_training(plain: Run) -> None:
    rejected = has_code("treatment_needs_autoregressive", option="objective", value="mrt", kind="graph")
    with pytest.raises(UsageError, check=rejected):
        RunConfig(start_from=plain.folder / "model", data=plain.config.data, model={"kind": "graph"}, train=MRT)


@pytest.mark.parametrize("kind", ["autoregressive", "masked", "ctc"])
def test_other_kinds_reject_ngrams(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError, check=has_code("ngrams_needs_graph", kind=kind)):
        make_config(tmp_path, model={"kind": kind}, train=NGRAMS)


def test_ngrams_need_a_trained_graph(tmp_path: Path, plain: Run) -> None:
    """New weights, weights of another kind, and links that are new: their outputs are noise."""
    with pytest.raises(UsageError, check=has_code("objective_needs_trained_model", objective="ngrams")):
        Run.begin(make_config(tmp_path, model=GRAPH, train=NGRAMS), tmp_path / "new", CPU)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, check=has_code("ngrams_needs_graph", kind="autoregressive")):
        begin_run(fine_tune(plain, NGRAMS), tmp_path / "run")
    config = RunConfig(**{**fine_tune(plain, NGRAMS).model_dump(exclude_unset=True), "model": {"kind": "graph"}})
    with pytest.raises(UsageError, check=has_code("ngrams_needs_trained_graph", kind="autoregressive")):
        begin_run(config, tmp_path / "links")


def test_losses_of_ngrams_are_negative_and_those_of_validations_are_not(tmp_path: Path, graph: Run) -> None:
    """A validation has -log P(target | source), as in other runs of this kind."""
    run = train_run(fine_tune(graph, NGRAMS), tmp_path / "run")
    assert all(-1 < each["loss"] < 0 for each in read_steps(run))
    lines = map(json.loads, (run.folder / "metrics.jsonl").read_text("utf-8").splitlines())
    assert all(each["loss"] > 0 for each in lines if each["kind"] == "validation")


@pytest.mark.parametrize("name", [*TREATMENTS, "mrt", "ngrams"])
def test_the_doctor_finds_no_fault(tmp_path: Path, name: str, plain: Run, graph: Run) -> None:
    run = begin_run(make_treated(name, tmp_path, plain, graph), tmp_path / "run")
    assert [each for each in examine_network(run, quick=True) if each.level == "fault"] == []
