"""`attendo verify-resume` confirms an exact resume and reports any difference."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from children import Children, Job
from error_codes import has_code
from safetensors.torch import load_file, save_file
from small_run import run_config, write_run_file, write_text

from attendo.cli.verify import verify_resume
from attendo.errors import AttendoError, DataError, UsageError
from attendo.runs import verify_resume as recipe
from attendo.runs.config import RunConfig
from attendo.runs.verify_resume import ResumeComparison, ResumeVerification, TrialStep, compare_runs, suggest_fix

Verify = Callable[..., list[str]]


@pytest.fixture
def commands(children: Children, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Records the commands and runs them in forked processes, which need not import torch again."""
    run: list[Sequence[str]] = []

    def run_forked(arguments: Sequence[str]) -> None:
        run.append(arguments)
        ended = children.attendo(*arguments)
        assert ended.code == 0, ended.errors

    monkeypatch.setattr(recipe, "run_attendo", run_forked)
    return run


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"dropout": 0.2}, "train": {"ema": 0.9, "patience": 1, "validate_every": 1, "schedule": "cosine"}},
        pytest.param(
            {
                "tokenizer": {"kind": "bpe", "size": 320, "dropout": 0.1},
                "train": {"accumulate": 2, "best": "exact_match"},
            },
            marks=pytest.mark.slow,
        ),
    ],
)
def test_exact_resume_is_confirmed(
    commands: list[Sequence[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    train = changes.pop("train")
    config = run_config(write_text(tmp_path), train, **changes)
    verify_resume(write_run_file(tmp_path / "run.toml", config), steps=8, device="cpu")
    captured = capsys.readouterr()
    rows = [line.split("  ")[1:] for line in captured.out.splitlines()[1:-1]]
    assert [row[-1].strip() for row in rows] == ["equal"] * 6
    assert captured.out.startswith("stopped after step 1, 4, 6 and resumed by a new process each time:\n")
    assert captured.out.endswith("the same run, bit for bit\n")
    assert [" ".join(command).count("--resume") for command in commands] == [0, 0, 1, 1, 1]
    assert [command[command.index("--stop-at") + 1] for command in commands] == ["8", "1", "4", "6", "8"]
    assert all("--set" not in command for command in commands)
    assert not list(tmp_path.glob("attendo-*"))


def test_trial_keeps_the_settings_except_early_ends(prepared: Path) -> None:
    config = run_config({"prepared": prepared}, {"steps": 500, "patience": 3, "schedule": "linear", "ema": 0.5})
    trial = ResumeVerification(config, prepared, 20, "cpu").config
    assert (trial.train.steps, trial.train.patience, trial.train.validate_every) == (500, 0, 10)
    same = {"patience", "validate_every", "save_every", "metric_pairs", "samples", "final"}
    assert trial.train.model_dump(exclude=same) == config.train.model_dump(exclude=same)
    assert (trial.model, trial.seed, trial.tokenizer) == (config.model, config.seed, config.tokenizer)


@pytest.mark.parametrize(("steps", "stops"), [(2, [1]), (3, [1, 2]), (20, [1, 10, 15]), (1000, [1, 12, 18])])
def test_stops_are_between_the_first_and_last_step(prepared: Path, steps: int, stops: list[int]) -> None:
    verification = ResumeVerification(run_config({"prepared": prepared}), prepared, steps, "cpu")
    assert verification.steps == min(steps, 24)
    assert verification.stops == stops


def test_run_of_one_step_raises(prepared: Path) -> None:
    with pytest.raises(UsageError, check=has_code("resume_check_too_short", steps=1)):
        ResumeVerification(run_config({"prepared": prepared}, {"steps": 1}), prepared, 20, "cpu")


@pytest.mark.slow
def test_lost_random_state_is_detected(
    children: Children,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Resumed processes do not restore the random state."""

    def run_without_random_state(arguments: Sequence[str]) -> None:
        jobs: list[Job] = [("forget_random_state", {})] if "--resume" in arguments else []
        assert children.attendo(*arguments, before=jobs).code == 0

    monkeypatch.setattr(recipe, "run_attendo", run_without_random_state)
    config = run_config({"prepared": prepared}, model={"dropout": 0.3})
    with pytest.raises(typer.Exit) as exit_info:
        verify_resume(write_run_file(tmp_path / "run.toml", config), steps=4, device="cpu")
    assert exit_info.value.exit_code == 1
    output = capsys.readouterr().out
    assert re.search(r"^  weights +\d+ of \d+ differ, by 0\.\d+ at most \(\S+\)$", output, re.MULTILINE)
    assert re.search(r"^  random state +1 of 3 differ", output, re.MULTILINE)
    assert re.search(
        r"^  place in the data, counters +\d+ of \d+ differ, by \S+ at most \(best\w*\)$", output, re.MULTILINE
    )
    assert "not the same run: with these settings the runs must be equal" in output


def test_changed_and_missing_losses_are_reported(tmp_path: Path, prepared: Path, commands: list[Sequence[str]]) -> None:
    config = run_config({"prepared": prepared})
    reports = list(ResumeVerification(config, prepared, 2, "cpu", recipe.run_attendo).run(tmp_path))
    assert [type(report) for report in reports[:3]] == [TrialStep] * 3
    assert all(report.equal for report in reports[3:] if isinstance(report, ResumeComparison))
    metrics = tmp_path / "stopped" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    lines[0]["loss"] += 0.5
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]), "utf-8")
    comparisons = {each.name: each for each in compare_runs(tmp_path / "whole", tmp_path / "stopped", 2)}
    losses = comparisons["losses and gradients of 2 steps"]
    assert (losses.equal, losses.largest, losses.location) == (False, pytest.approx(0.5), "step 1 loss")
    assert losses.unequal == 1 + 3, "a step that is missing differs too"
    assert comparisons["weights"].equal


def test_sign_of_zero_and_shape_are_differences(tmp_path: Path) -> None:
    one, other = (
        {"a": torch.tensor([1.0, 0.0]), "b": torch.ones(3)},
        {"a": torch.tensor([1.0, -0.0]), "b": torch.ones(3)},
    )
    for name, tensors in (("one", one), ("other", other)):
        save_file(tensors, tmp_path / name)
    compared = recipe._compare_values("weights", load_file(tmp_path / "one"), load_file(tmp_path / "other"))
    assert (compared.count, compared.unequal, compared.location) == (2, 1, "a")
    same = recipe._compare_values("weights", one, one)
    assert (same.equal, same.largest, same.location) == (True, 0.0, "")
    assert not recipe._compare_values("weights", one, {**one, "c": torch.ones(1)}).equal
    assert not recipe._compare_values("weights", one, {**one, "b": torch.ones(4)}).equal


@pytest.mark.parametrize(
    ("train", "device", "suggestion"),
    [
        ({}, "cuda", "train.deterministic=true"),
        ({"deterministic": True}, "cuda", "train.compile=off"),
        ({"deterministic": True, "compile": "off"}, "cuda", "train.capture=off"),
        ({"deterministic": True, "compile": "off", "capture": "off"}, "cuda", "report"),
        ({"compile": "on"}, "cpu", "train.compile=off"),
        ({}, "cpu", "report"),
    ],
)
def test_suggested_fix_depends_on_device_and_settings(train: dict[str, Any], device: str, suggestion: str) -> None:
    config = RunConfig(data={"task": "builtin"}, train=train)
    assert suggestion in suggest_fix(config, device)


def test_errors_are_raised_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, check=has_code("run_file_not_readable")):
        verify_resume(tmp_path / "missing.toml")
    config = run_config({"source": str(tmp_path / "no"), "target": str(tmp_path / "nor")})
    with pytest.raises(DataError):
        verify_resume(write_run_file(tmp_path / "run.toml", config), device="cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, check=has_code("verify_resume_under_torchrun")):
        verify_resume(tmp_path / "run.toml")


def test_failing_process_passes_on_its_error_and_exit_code(tmp_path: Path) -> None:
    with pytest.raises(AttendoError, check=has_code("attendo_command_failed", command="train")) as caught:
        recipe.run_attendo(["train", str(tmp_path / "x.toml")])
    assert caught.value.exit_code == 2


@pytest.mark.slow
def test_exact_resume_is_confirmed_by_real_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run_config(write_text(tmp_path), model={"dropout": 0.1})
    verify_resume(write_run_file(tmp_path / "run.toml", config), steps=4, device="cpu")
    assert capsys.readouterr().out.endswith("the same run, bit for bit\n")
