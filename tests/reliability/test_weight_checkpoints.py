"""Weights-only checkpoints: their steps, their content, resumed runs and full disks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from full_disk import room_for
from safetensors.torch import load_file
from small_run import STEPS, begin, leftover_files, reports, resume, run_config, train_to_the_end

import attendo as package
from attendo.runs.run import Run
from attendo.train.config import TrainConfig
from attendo.train.loop import Report, Saved, SaveFailed, Step

WRITTEN = [0, 1, 2, 8]  # four of a run of 24 steps


@pytest.fixture
def config(prepared: Path) -> Any:
    train = {"weight_checkpoints": 4, "save_every": 3, "keep_last": 1, "ema": 0.9}
    return run_config({"prepared": prepared}, train, model={"dropout": 0.2})


def read_weights(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted((run / "weights").rglob("*.*"))}


@pytest.mark.parametrize(
    ("steps", "count", "expected"),
    [
        (2800, 12, (0, 11, 18, 30, 50, 82, 140, 230, 370, 620, 1000, 1700)),
        (200_000, 3, (0, 780, 12_000)),
        (24, 4, tuple(WRITTEN)),
        (6000, 1, (0,)),
        (6000, 0, ()),
        (1, 12, (0,)),
    ],
)
def test_steps_are_log_spaced_from_zero(steps: int, count: int, expected: tuple[int, ...]) -> None:
    assert TrainConfig(steps=steps, weight_checkpoints=count).weight_checkpoint_steps == expected


def test_each_has_the_validated_weights_of_its_step_in_float16(config: Any, tmp_path: Path) -> None:
    run, expected = begin(config, tmp_path / "run"), {}
    due = config.train.weight_checkpoint_steps
    received: list[Report] = []

    def remember() -> None:
        with run.trainer.updater.eval_weights():
            expected[run.trainer.step] = {
                name: weight.detach().half() for name, weight in run.model.network.named_parameters()
            }

    remember()
    for report in run.train():
        received.append(report)
        if isinstance(report, Step) and report.step in due:
            remember()
    assert tuple(report.step for report in received if isinstance(report, Saved) and report.weights_only) == due
    assert run.weight_checkpoints.steps() == list(due), "keep_last removes none"
    for step in due:
        stored = load_file(run.weight_checkpoints.path(step) / "weights.safetensors")
        assert all(torch.equal(weight, expected[step][name]) for name, weight in stored.items())
        model = package.load(run.weight_checkpoints.path(step), "cpu")
        assert model.scores == {"step": step}
        assert model.source_tokenizer == run.model.source_tokenizer
        assert model.generate(["ab cd"])[0].text is not None


@pytest.mark.parametrize("stop", [1, 2, 8, 15])
def test_a_resumed_run_writes_the_same_bytes(config: Any, tmp_path: Path, stop: int) -> None:
    whole = read_weights(train_to_the_end(begin(config, tmp_path / "whole")).folder)
    stopped = begin(config, tmp_path / "stopped")
    for report in stopped.train(stop_at=stop):
        if report.step == stop and stopped.trainer.all_reported:
            break
    stopped.save()
    assert read_weights(train_to_the_end(resume(stopped.folder)).folder) == whole
    assert sorted({row["step"] for row in reports(stopped.folder) if row.get("weights_only")}) == WRITTEN


def test_a_run_that_returns_to_an_earlier_checkpoint_keeps_what_is_intact(config: Any, tmp_path: Path) -> None:
    run = begin(config, tmp_path / "run")
    for report in run.train():
        if report.step == 8:
            break
    before, folder = read_weights(run.folder), run.weight_checkpoints.path(run.weight_checkpoints.steps()[-1])
    inode = folder.stat().st_ino
    damaged = run.weight_checkpoints.path(run.weight_checkpoints.steps()[1]) / "weights.safetensors"
    again = resume(run.folder)
    train_to_the_end(again)
    assert {name: content for name, content in read_weights(run.folder).items() if name in before} == before
    assert folder.stat().st_ino == inode
    damaged.write_bytes(b"nothing")
    assert again._write_weights(run.weight_checkpoints.steps()[1]).exists()
    assert package.load(damaged.parent, "cpu").network is not None


def test_a_full_disk_is_reported_and_training_continues(config: Any, tmp_path: Path) -> None:
    run = begin(config, tmp_path / "run")
    received: list[Report] = []
    training = run.train()
    with room_for(5_000):
        for report in training:
            received.append(report)
            if report.step == 2 and isinstance(report, SaveFailed):
                break
    failed = [report for report in received if isinstance(report, SaveFailed)]
    assert [(each.step, each.failures) for each in failed] == [(0, 1), (1, 2), (2, 3)]
    assert str(run.folder / "weights") in failed[0].reason
    assert leftover_files(run.folder) == []
    received += list(training)
    assert received[-1].step == STEPS
    assert run.weight_checkpoints.steps() == list(config.train.weight_checkpoint_steps[3:])


def test_a_new_run_in_the_folder_removes_them(config: Any, tmp_path: Path) -> None:
    run = train_to_the_end(begin(config, tmp_path / "run"))
    assert run.weight_checkpoints.steps()
    Run.begin(config.replace(train=config.train.replace(weight_checkpoints=0)), run.folder, run.device, overwrite=True)
    assert run.weight_checkpoints.steps() == []
