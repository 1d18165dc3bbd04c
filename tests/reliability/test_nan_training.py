"""R10: a step with a NaN loss or gradient changes no weights and is logged; five in a row end the run."""

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
def break_gradients(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    """Makes the gradients of these batches (counted from 1) NaN or infinite. Their loss stays finite."""

    def break_at(batches: set[int], factor: float) -> None:
        loss, batches_seen = attendo.train.update.training_loss, 0

        def loss_with_hook(*arguments: Any) -> Tensor:
            nonlocal batches_seen
            batches_seen += 1
            value = loss(*arguments)
            if batches_seen in batches:
                value.register_hook(lambda gradient: gradient * factor)
            return value

        monkeypatch.setattr(attendo.train.update, "training_loss", loss_with_hook)

    return break_at


@pytest.mark.short(1)
@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_R10_nan_step_changes_no_weights_and_is_counted(
    prepared: Path, tmp_path: Path, break_gradients: Breaker, factor: float, optimizer: str
) -> None:
    changes = {"ema": 0.9, "optimizer": optimizer, "weight_decay": 0.1, "accumulate": 2}
    run = begin(run_config({"prepared": prepared}, changes), tmp_path / "run")
    break_gradients({6}, factor)  # the second batch of the third update
    before: dict[str, Tensor] = {}
    for report in run.train():
        if report.step == 2 and isinstance(report, Step):
            before = trained_tensors(run)
        if report.step == 3 and isinstance(report, Step):
            assert report.skipped
            assert report.loss != report.loss
            after = trained_tensors(run)
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
        if isinstance(report, Skipped):
            assert report == Skipped(3, batch_pairs(run, first=4, count=2))
    assert (run.trainer.state.skipped, run.trainer.state.skipped_in_a_row) == (1, 0)
    assert not any(
        torch.equal(before[name], weight) for name, weight in trained_tensors(run).items() if "weight" in name
    )
    (written,) = (run.folder / "skipped.jsonl").read_text("utf-8").splitlines()
    assert json.loads(written) == {"step": 3, "pairs": list(batch_pairs(run, first=4, count=2))}
    skipped = [line for line in reports(run.folder) if line["kind"] == "step" and line["skipped"]]
    assert [(line["step"], line["loss"]) for line in skipped] == [(3, None)]
    assert run.trainer.state.tokens == sum(
        line["tokens"] for line in reports(run.folder) if line["kind"] == "step" and not line["skipped"]
    )


def test_R10_first_step_may_be_skipped_and_saved(prepared: Path, tmp_path: Path, break_gradients: Breaker) -> None:
    run = begin(run_config({"prepared": prepared}), tmp_path / "run")
    break_gradients({1}, float("nan"))
    next(iter(run.train()))
    run.save()
    found = run.checkpoints.load_newest()
    assert found is not None
    assert found.snapshot.state["skipped_in_a_row"] == 1
    assert all(not tensor.any() for name, tensor in found.snapshot.optimizer.items() if "exp_avg" in name)
    assert run.trainer.restore(found.snapshot)


def test_R10_five_nan_steps_in_a_row_end_the_run(prepared: Path, tmp_path: Path, break_gradients: Breaker) -> None:
    run = begin(run_config({"prepared": prepared}), tmp_path / "run")
    break_gradients({2, 3, 4, 5, 7, 8, 9, 10, 11}, float("nan"))
    with pytest.raises(DivergedError, check=has_code("training_diverged", steps=5)):
        list(run.train())
    assert run.trainer.step == 11
    lines = (run.folder / "skipped.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 3, 4, 5, 7, 8, 9, 10, 11]


def test_R10_diverging_run_ends_with_code_1_and_one_line(children: Children, prepared: Path, tmp_path: Path) -> None:
    config = run_config({"prepared": prepared}, {"peak_lr": 1e30, "warmup": 0, "save_every": 1, "clip_norm": 0.0})
    run_file = write_run_file(tmp_path / "run.toml", config)
    failed = children.attendo("train", run_file, "--out", tmp_path / "run")
    assert failed.code == 1
    assert failed.error == message("training_diverged", steps=5)


def test_R10_fp16_overflow_halves_the_loss_scale(prepared: Path, tmp_path: Path, break_gradients: Breaker) -> None:
    run = begin(run_config({"prepared": prepared}, {"precision": "fp16", "steps": 12}), tmp_path / "run")
    break_gradients({2, 3, 4, 5, 6, 7, 8}, float("inf"))
    scales = [
        (report.skipped, float(run.trainer.updater.loss_scale)) for report in run.train() if isinstance(report, Step)
    ]
    first = 2.0**16
    halved = [(True, first / 2**n) for n in range(1, 8)]
    assert scales == [(False, first), *halved, *[(False, first / 2**7)] * 4]
    assert float(run.trainer.updater.good_steps) == 4
    assert run.trainer.updater.precision == "fp16"


def trained_tensors(run: Run) -> dict[str, Tensor]:
    """All tensors that an update may change."""
    snapshot = run.trainer.snapshot()
    return {name: tensor.clone() for part in (snapshot.model, snapshot.optimizer) for name, tensor in part.items()}


def batch_pairs(run: Run, first: int, count: int) -> tuple[int, ...]:
    """The numbers of the pairs of `count` batches of the run."""
    stream = BatchStream(run.data, run.config.train.batch_tokens, run.config.seed).batches()
    batches = [next(stream).batch for _ in range(first + count)][first:]
    return tuple(number for batch in batches for number in batch.numbers)
