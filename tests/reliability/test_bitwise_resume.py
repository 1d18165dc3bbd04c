"""R1: a stopped and resumed run equals the uninterrupted one, bit for bit, in weights, optimizer and losses."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Children
from small_run import (
    CPU,
    STEPS,
    VALIDATED_AT,
    Outcome,
    begin,
    outcome,
    resume,
    run_config,
    train_to_the_end,
    write_run_file,
)

import attendo.train.update
import attendo.train.validation
from attendo.cli.progress import train_with_progress
from attendo.runs.config import RunConfig
from attendo.runs.run import Run
from attendo.train.loop import Report, Step, Validation

Stop = Callable[[Report, Run], bool]
Configs = Callable[..., RunConfig]
References = Callable[..., Outcome]

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"model": {"dropout": 0.3, "attention_dropout": 0.2}},
    "moving average": {"model": {"dropout": 0.1}, "train": {"ema": 0.9, "weight_decay": 0.1, "optimizer": "adam"}},
    "BPE-dropout": {"tokenizer": {"dropout": 0.2}, "train": {"workers": 2, "r_drop": 1.0}, "model": {"dropout": 0.1}},
    "relative positions": {
        "model": {"dropout": 0.1, "positions": "relative", "final_dropout": True, "linear_bias": False}
        | {"attention_scale": 1.0, "activation": "geglu_tanh", "norm_kind": "rms"}
    },
    "checkpoints in a thread": {"model": {"dropout": 0.1}, "train": {"async_checkpoints": True, "ema": 0.9}},
    "scheduled sampling": {
        "train": {"scheduled_sampling": "schedule", "sampling_start": 0.3, "sampling_decay": 2.0, "input_noise": 0.2},
        "model": {"dropout": 0.1},
    },
}
STOPS: dict[str, Stop] = {
    "at the first step": lambda report, run: isinstance(report, Step) and report.step == 1,
    "amid an epoch": lambda report, run: isinstance(report, Step) and report.step == 5,
    "at the end of an epoch": lambda report, run: at_the_end_of_an_epoch(report, run),
    "before a validation": lambda report, run: isinstance(report, Step) and report.step == VALIDATED_AT,
    "after a validation": lambda report, run: isinstance(report, Validation) and report.step == VALIDATED_AT,
    "before the last validation": lambda report, run: isinstance(report, Step) and report.step == STEPS,
}


# Every variant and every stop point. `make test-all` runs all combinations.
SHORT = {
    ("plain", "at the first step"),
    ("plain", "before the last validation"),
    ("dropout", "amid an epoch"),
    ("dropout", "after a validation"),
    ("moving average", "before a validation"),
    ("BPE-dropout", "at the end of an epoch"),
    ("relative positions", "amid an epoch"),
    ("checkpoints in a thread", "after a validation"),
    ("scheduled sampling", "amid an epoch"),
}


def in_short(*case: str, short: set[Any]) -> Any:
    """One case of a grid. Cases that are not in `short` run with `make test-all` only."""
    name = case if len(case) > 1 else case[0]
    return pytest.param(*case, marks=[] if name in short else [pytest.mark.slow])


def at_the_end_of_an_epoch(report: Report, run: Run) -> bool:
    position = run.trainer.state.position
    return isinstance(report, Step) and (position.epoch, position.batch) == (1, 0)


@pytest.fixture(scope="module")
def configs(prepared: Path, prepared_pieces: Path) -> Configs:
    """Makes the settings of a variant."""

    def make(variant: str, **train: Any) -> RunConfig:
        changes = VARIANTS[variant]
        data = prepared_pieces if "tokenizer" in changes else prepared
        others = {name: changes.get(name, {}) for name in ("tokenizer", "model")}
        return run_config({"prepared": data}, {**changes.get("train", {}), **train}, **others)

    return make


@pytest.fixture(scope="module")
def uninterrupted(configs: Configs, tmp_path_factory: pytest.TempPathFactory) -> References:
    """The outcome of a variant without a stop. Each is trained once."""
    outcomes: dict[str, Outcome] = {}

    def train_variant(variant: str, **train: Any) -> Outcome:
        name = f"{variant} {train}"
        if name not in outcomes:
            folder = tmp_path_factory.mktemp("uninterrupted") / "run"
            train_to_the_end(begin(configs(variant, **train), folder))
            outcomes[name] = outcome(folder)
        return outcomes[name]

    return train_variant


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("variant", "stop"), [in_short(variant, stop, short=SHORT) for variant in VARIANTS for stop in STOPS]
)
def test_R1_resumed_run_equals_the_uninterrupted_one(
    configs: Configs, uninterrupted: References, tmp_path: Path, variant: str, stop: str
) -> None:
    run = begin(configs(variant), tmp_path / "run")
    stopped_at = stop_when(run, STOPS[stop])
    again = resume(run.folder)
    assert again.trainer.step == stopped_at
    assert again.warnings == []
    train_to_the_end(again)
    expected = uninterrupted(variant)
    found = outcome(run.folder)
    if stop == "before the last validation":  # that step was saved before its validation and is not saved again
        later = ("validated", "best", "best_step", "best_loss", "since_best")
        found.state.update({name: expected.state[name] for name in later})
    assert found == expected
    assert [line["step"] for line in found.steps] == list(range(1, STEPS + 1))


@pytest.mark.slow
@pytest.mark.parametrize("variant", [in_short(each, short={"moving average"}) for each in VARIANTS])
def test_R1_signal_during_an_update_waits_for_its_end(
    configs: Configs, uninterrupted: References, tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.begin(configs(variant, accumulate=3), tmp_path / "run", CPU)
    batches_seen = 0
    forward_backward = attendo.train.update.Updater._forward_backward

    def forward_with_signal(*arguments: Any) -> None:
        nonlocal batches_seen
        batches_seen += 1
        if batches_seen == 3 * 4 + 2:  # the second batch of the fifth update
            os.kill(os.getpid(), signal.SIGTERM)
        forward_backward(*arguments)

    monkeypatch.setattr(attendo.train.update.Updater, "_forward_backward", forward_with_signal)
    done = train_with_progress(run)
    assert (done.stopped, done.exit_code, run.trainer.step) == (True, 143, 5)
    monkeypatch.undo()
    train_to_the_end(resume(run.folder))
    assert outcome(run.folder) == uninterrupted(variant, accumulate=3)


def test_R1_error_during_an_update_saves_no_partial_step(
    configs: Configs, uninterrupted: References, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.begin(configs("dropout"), tmp_path / "run", CPU)
    batches_seen = 0
    forward_backward = attendo.train.update.Updater._forward_backward

    def forward_with_error(*arguments: Any) -> None:
        nonlocal batches_seen
        batches_seen += 1
        if batches_seen == 13:
            raise RuntimeError("out of memory")
        forward_backward(*arguments)

    monkeypatch.setattr(attendo.train.update.Updater, "_forward_backward", forward_with_error)
    with pytest.raises(RuntimeError, match="out of memory"):
        train_with_progress(run)
    monkeypatch.undo()
    assert 13 not in run.checkpoints.steps()
    train_to_the_end(resume(run.folder))
    assert outcome(run.folder) == uninterrupted("dropout")


@pytest.mark.slow
def test_R1_signal_interrupts_a_validation(
    configs: Configs, uninterrupted: References, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives during the validation, which is done when the run is resumed."""
    scored: dict[str, Any] = {"metrics": ("chrf",), "metric_pairs": 10}
    run = Run.begin(configs("moving average", **scored), tmp_path / "run", CPU)
    loss = attendo.train.validation.cross_entropy_sum

    def forward_with_signal(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return loss(*arguments)

    monkeypatch.setattr(attendo.train.validation, "cross_entropy_sum", forward_with_signal)
    done = train_with_progress(run)
    monkeypatch.undo()
    assert (done.stopped, done.exit_code, run.trainer.step) == (True, 143, VALIDATED_AT)
    assert run.trainer.state.validated == 0
    train_to_the_end(resume(run.folder))
    assert outcome(run.folder) == uninterrupted("moving average", **scored)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_R1_run_stopped_many_times_equals_the_uninterrupted_one(
    configs: Configs, uninterrupted: References, tmp_path: Path, every: int
) -> None:
    run = begin(configs("dropout"), tmp_path / "run")
    for step in range(every, STEPS, every):
        assert stop_when(run, lambda report, run, step=step: isinstance(report, Step) and report.step == step) == step
        run = resume(run.folder)
    train_to_the_end(run)
    assert outcome(run.folder) == uninterrupted("dropout")


@pytest.mark.slow
@pytest.mark.parametrize("variant", [in_short(each, short={"BPE-dropout"}) for each in ("dropout", "BPE-dropout")])
def test_R1_new_processes_resume_bit_for_bit(
    children: Children, configs: Configs, uninterrupted: References, tmp_path: Path, variant: str
) -> None:
    run, run_file = tmp_path / "run", write_run_file(tmp_path / "run.toml", configs(variant))
    assert children.attendo("train", run_file, "--out", run, "--stop-at", "3").code == 0
    for stop in (VALIDATED_AT, STEPS - 1):
        ended = children.attendo("train", "--resume", run, "--stop-at", str(stop))
        assert ended.code == 0, ended.errors
        assert not any(word in ended.errors for word in ("passed over", "may differ", "drawn anew"))
        assert f"stopped at step {stop}, saved; go on with: attendo train --resume {run}\n" in ended.errors
    assert children.attendo("train", "--resume", run).code == 0
    assert outcome(run) == uninterrupted(variant)


def test_another_random_state_gives_another_run(configs: Configs, uninterrupted: References, tmp_path: Path) -> None:
    """The comparison can fail: dropout with another random state gives another run."""
    run = begin(configs("dropout"), tmp_path / "run")
    stop_when(run, STOPS["amid an epoch"])
    again = resume(run.folder)
    torch.manual_seed(1)
    train_to_the_end(again)
    found, expected = outcome(run.folder), uninterrupted("dropout")
    assert found.steps[:5] == expected.steps[:5]
    assert found.steps[5] != expected.steps[5]
    assert (found.model != expected.model, found.random != expected.random) == (True, True)


def stop_when(run: Run, stop: Stop) -> int:
    """Stop the run at this report and save it, as the command line does."""
    reports = run.train()
    for report in reports:
        if stop(report, run):
            break
    else:
        raise AssertionError("the run went on to its end")
    reports.close()  # type: ignore[attr-defined]
    run.save()
    return run.trainer.step
