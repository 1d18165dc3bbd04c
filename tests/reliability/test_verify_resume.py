"""`attendo verify-resume` finds resuming exact where it is, and says what differs where it is not."""

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
    """The commands that were run, in forked processes: they cost no import of torch."""
    run: list[Sequence[str]] = []

    def forked(arguments: Sequence[str]) -> None:
        run.append(arguments)
        ended = children.attendo(*arguments)
        assert ended.code == 0, ended.errors

    monkeypatch.setattr(recipe, "run_attendo", forked)
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
def test_a_run_is_found_to_be_the_same(
    commands: list[Sequence[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    train = changes.pop("train")
    config = run_config(write_text(tmp_path), train, **changes)
    verify_resume(write_run_file(tmp_path / "run.toml", config), steps=8, device="cpu")
    said = capsys.readouterr()
    rows = [line.split("  ")[1:] for line in said.out.splitlines()[1:-1]]
    assert [row[-1].strip() for row in rows] == ["equal"] * 6
    assert said.out.startswith("stopped after step 1, 4, 6 and resumed by a new process each time:\n")
    assert said.out.endswith("the same run, bit for bit\n")
    assert [" ".join(command).count("--resume") for command in commands] == [0, 0, 1, 1, 1]
    assert [command[command.index("--stop-at") + 1] for command in commands] == ["8", "1", "4", "6", "8"]
    assert all("--set" not in command for command in commands)
    assert not list(tmp_path.glob("attendo-*"))


def test_the_settings_of_the_run_stay_but_for_what_would_end_it_early(prepared: Path) -> None:
    config = run_config({"prepared": prepared}, {"steps": 500, "patience": 3, "schedule": "linear", "ema": 0.5})
    trial = ResumeVerification(config, prepared, 20, "cpu").config
    assert (trial.train.steps, trial.train.patience, trial.train.validate_every) == (500, 0, 10)
    same = {"patience", "validate_every", "save_every", "metric_pairs", "samples", "final"}
    assert trial.train.model_dump(exclude=same) == config.train.model_dump(exclude=same)
    assert (trial.model, trial.seed, trial.tokenizer) == (config.model, config.seed, config.tokenizer)


@pytest.mark.parametrize(("steps", "stops"), [(2, [1]), (3, [1, 2]), (20, [1, 10, 15]), (1000, [1, 12, 18])])
def test_there_are_stops_between_the_first_step_and_the_last(prepared: Path, steps: int, stops: list[int]) -> None:
    verification = ResumeVerification(run_config({"prepared": prepared}), prepared, steps, "cpu")
    assert verification.steps == min(steps, 24)
    assert verification.stops == stops


def test_a_run_of_one_step_cannot_be_stopped(prepared: Path) -> None:
    with pytest.raises(UsageError, check=has_code("resume_check_too_short", steps=1)):
        ResumeVerification(run_config({"prepared": prepared}, {"steps": 1}), prepared, 20, "cpu")


@pytest.mark.slow
def test_dropout_that_is_drawn_anew_is_found_out(
    children: Children,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A fault on purpose: resumed processes forget the random state."""

    def forgetful(arguments: Sequence[str]) -> None:
        forget: list[Job] = [("forget_random_state", {})] if "--resume" in arguments else []
        assert children.attendo(*arguments, before=forget).code == 0

    monkeypatch.setattr(recipe, "run_attendo", forgetful)
    config = run_config({"prepared": prepared}, model={"dropout": 0.3})
    with pytest.raises(typer.Exit) as left:
        verify_resume(write_run_file(tmp_path / "run.toml", config), steps=4, device="cpu")
    assert left.value.exit_code == 1
    said = capsys.readouterr().out
    assert re.search(r"^  weights +\d+ of \d+ differ, by 0\.\d+ at most \(\S+\)$", said, re.MULTILINE)
    assert re.search(r"^  random state +1 of 3 differ", said, re.MULTILINE)
    assert re.search(
        r"^  place in the data, counters +\d+ of \d+ differ, by \S+ at most \(best\w*\)$", said, re.MULTILINE
    )
    assert "not the same run: with these settings that must not be" in said


def test_every_kind_of_difference_is_named(tmp_path: Path, prepared: Path, commands: list[Sequence[str]]) -> None:
    config = run_config({"prepared": prepared})
    reports = list(ResumeVerification(config, prepared, 2, "cpu", recipe.run_attendo).run(tmp_path))
    assert [type(report) for report in reports[:3]] == [TrialStep] * 3
    assert all(report.equal for report in reports[3:] if isinstance(report, ResumeComparison))
    metrics = tmp_path / "stopped" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    lines[0]["loss"] += 0.5
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]), "utf-8")
    told = {each.name: each for each in compare_runs(tmp_path / "whole", tmp_path / "stopped", 2)}
    losses = told["losses and gradients of 2 steps"]
    assert (losses.equal, losses.largest, losses.location) == (False, pytest.approx(0.5), "step 1 loss")
    assert losses.unequal == 1 + 3, "a step that is missing differs too"
    assert told["weights"].equal


def test_one_bit_and_a_zero_of_another_sign_are_differences(tmp_path: Path) -> None:
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
    ("train", "device", "word"),
    [
        ({}, "cuda", "train.deterministic=true"),
        ({"deterministic": True}, "cuda", "train.compile=off"),
        ({"deterministic": True, "compile": "off"}, "cuda", "train.capture=off"),
        ({"deterministic": True, "compile": "off", "capture": "off"}, "cuda", "report"),
        ({"compile": "on"}, "cpu", "train.compile=off"),
        ({}, "cpu", "report"),
    ],
)
def test_what_to_try_depends_on_the_device_and_the_settings(train: dict[str, Any], device: str, word: str) -> None:
    config = RunConfig(data={"task": "builtin"}, train=train)
    assert word in suggest_fix(config, device)


def test_mistakes_are_told_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, check=has_code("run_file_not_readable")):
        verify_resume(tmp_path / "missing.toml")
    config = run_config({"source": str(tmp_path / "no"), "target": str(tmp_path / "nor")})
    with pytest.raises(DataError):
        verify_resume(write_run_file(tmp_path / "run.toml", config), device="cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, check=has_code("verify_resume_under_torchrun")):
        verify_resume(tmp_path / "run.toml")


def test_a_process_that_fails_hands_on_its_last_line_and_exit_code(tmp_path: Path) -> None:
    with pytest.raises(AttendoError, check=has_code("attendo_command_failed", command="train")) as caught:
        recipe.run_attendo(["train", str(tmp_path / "x.toml")])
    assert caught.value.exit_code == 2


@pytest.mark.slow
def test_real_processes_find_a_run_to_be_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run_config(write_text(tmp_path), model={"dropout": 0.1})
    verify_resume(write_run_file(tmp_path / "run.toml", config), steps=4, device="cpu")
    assert capsys.readouterr().out.endswith("the same run, bit for bit\n")
