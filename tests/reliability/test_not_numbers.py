"""R10: a step whose loss or gradient is no number changes nothing, is counted and named; many in a row end the run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Children
from error_codes import has_code, message
from small_run import begin, reports, run_config, write_run_file
from torch import Tensor

import attendo.train.update
from attendo.data.sampler import BatchStream
from attendo.runs.run import Run
from attendo.train.loop import DivergedError, Skipped, Step

Breaker = Callable[[set[int], float], None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    """Makes the gradient of these batches (counted from 1) no number, their loss staying one."""

    def break_at(batches: set[int], factor: float) -> None:
        loss, seen = attendo.train.update.training_loss, 0

        def breaking(*arguments: Any) -> Tensor:
            nonlocal seen
            seen += 1
            value = loss(*arguments)
            if seen in batches:
                value.register_hook(lambda gradient: gradient * factor)
            return value

        monkeypatch.setattr(attendo.train.update, "training_loss", breaking)

    return break_at


@pytest.mark.short(1)
@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_R10_a_step_without_a_number_changes_no_bit_and_is_counted(
    prepared: Path, tmp_path: Path, broken: Breaker, factor: float, optimizer: str
) -> None:
    changes = {"ema": 0.9, "optimizer": optimizer, "weight_decay": 0.1, "accumulate": 2}
    run = begin(run_config({"prepared": prepared}, changes), tmp_path / "run")
    broken({6}, factor)  # the second batch of the third update
    before: dict[str, Tensor] = {}
    for report in run.train():
        if report.step == 2 and isinstance(report, Step):
            before = learned(run)
        if report.step == 3 and isinstance(report, Step):
            assert report.skipped
            assert report.loss != report.loss
            after = learned(run)
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
        if isinstance(report, Skipped):
            assert report == Skipped(3, pairs_of(run, first=4, count=2))
    assert (run.trainer.state.skipped, run.trainer.state.skipped_in_a_row) == (1, 0)
    assert not any(torch.equal(before[name], weight) for name, weight in learned(run).items() if "weight" in name)
    (written,) = (run.folder / "skipped.jsonl").read_text("utf-8").splitlines()
    assert json.loads(written) == {"step": 3, "pairs": list(pairs_of(run, first=4, count=2))}
    skipped = [line for line in reports(run.folder) if line["kind"] == "step" and line["skipped"]]
    assert [(line["step"], line["loss"]) for line in skipped] == [(3, None)]
    assert run.trainer.state.tokens == sum(
        line["tokens"] for line in reports(run.folder) if line["kind"] == "step" and not line["skipped"]
    )


def test_R10_the_very_first_step_may_be_skipped_and_saved(prepared: Path, tmp_path: Path, broken: Breaker) -> None:
    run = begin(run_config({"prepared": prepared}), tmp_path / "run")
    broken({1}, float("nan"))
    next(iter(run.train()))
    run.save()
    found = run.checkpoints.load_newest()
    assert found is not None
    assert found.snapshot.state["skipped_in_a_row"] == 1
    assert all(not tensor.any() for name, tensor in found.snapshot.optimizer.items() if "exp_avg" in name)
    assert run.trainer.restore(found.snapshot)


def test_R10_five_in_a_row_end_the_run_and_four_do_not(prepared: Path, tmp_path: Path, broken: Breaker) -> None:
    run = begin(run_config({"prepared": prepared}), tmp_path / "run")
    broken({2, 3, 4, 5, 7, 8, 9, 10, 11}, float("nan"))
    with pytest.raises(DivergedError, check=has_code("training_diverged", steps=5)):
        list(run.train())
    assert run.trainer.step == 11
    lines = (run.folder / "skipped.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 3, 4, 5, 7, 8, 9, 10, 11]


def test_R10_a_run_that_diverges_ends_with_exit_code_1_and_one_line(
    children: Children, prepared: Path, tmp_path: Path
) -> None:
    config = run_config({"prepared": prepared}, {"peak_lr": 1e30, "warmup": 0, "save_every": 1, "clip_norm": 0.0})
    run_file = write_run_file(tmp_path / "run.toml", config)
    failed = children.attendo("train", run_file, "--out", tmp_path / "run")
    assert failed.code == 1
    assert failed.error == message("training_diverged", steps=5)


def test_R10_an_overflow_in_fp16_halves_the_loss_scale_and_is_no_divergence(
    prepared: Path, tmp_path: Path, broken: Breaker
) -> None:
    run = begin(run_config({"prepared": prepared}, {"precision": "fp16", "steps": 12}), tmp_path / "run")
    broken({2, 3, 4, 5, 6, 7, 8}, float("inf"))
    scales = [
        (report.skipped, float(run.trainer.updater.loss_scale)) for report in run.train() if isinstance(report, Step)
    ]
    first = 2.0**16
    halved = [(True, first / 2**n) for n in range(1, 8)]
    assert scales == [(False, first), *halved, *[(False, first / 2**7)] * 4]
    assert float(run.trainer.updater.good_steps) == 4
    assert run.trainer.updater.precision == "fp16"


def learned(run: Run) -> dict[str, Tensor]:
    """All that an update may change but the count of updates."""
    snapshot = run.trainer.snapshot()
    return {name: tensor.clone() for part in (snapshot.model, snapshot.optimizer) for name, tensor in part.items()}


def pairs_of(run: Run, first: int, count: int) -> tuple[int, ...]:
    """The numbers of the pairs of some batches of the run."""
    stream = BatchStream(run.data, run.config.train.batch_tokens, run.config.seed).batches()
    batches = [next(stream).batch for _ in range(first + count)][first:]
    return tuple(number for batch in batches for number in batch.numbers)
