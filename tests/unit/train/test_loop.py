"""The training loop, a generator of reports."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from error_codes import has_code
from learning import BATCH, OTHER, ListStream, config, make_updater
from tiny import PATIENCE

from attendo.train.checkpoint import Checkpoints
from attendo.train.distributed import Distributed
from attendo.train.loop import (
    DivergedError,
    Report,
    Saved,
    SaveError,
    SaveFailed,
    Skipped,
    Step,
    Stopped,
    Trainer,
    Validation,
)
from attendo.train.optimizer import learning_rate

MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def make_trainer(tmp_path: Path) -> MakeTrainer:
    """A factory of trainers with given validation losses; the last loss repeats."""

    def make(
        losses: tuple[float, ...] | None = (3.0, 2.0, 1.0), dropout: float = 0.0, folder: str = "run", **changes: Any
    ) -> Trainer:
        remaining = list(losses or ())

        def validate(step: int) -> Validation:
            return Validation(
                step,
                remaining.pop(0) if len(remaining) > 1 else remaining[0],
                {"bleu": float(step), "exact_match": 0.0},
            )

        checkpoints = Checkpoints(tmp_path / folder)
        trained = make_updater(config(**changes), dropout=dropout)
        return Trainer(trained, ListStream(), validate if losses else None, checkpoints, {"known": 1})

    return make


def list_events(reports: list[Report]) -> list[tuple[str, int]]:
    return [(type(report).__name__, report.step) for report in reports]


def test_reports_follow_the_configured_intervals(make_trainer: MakeTrainer) -> None:
    reports = list(make_trainer().train())
    steps = [("Step", n) for n in range(1, 7)]
    assert (
        list_events(reports)
        == [
            *steps[:3],
            ("Saved", 3),
            *steps[3:4],
            ("Validation", 4),
            ("Saved", 4),  # the best so far
            *steps[4:6],
            ("Validation", 6),
            ("Saved", 6),
        ]
    )
    assert [report.best for report in reports if isinstance(report, Validation)] == [True, True]


def test_a_validation_that_is_not_the_best_does_not_save(make_trainer: MakeTrainer) -> None:
    reports = list(make_trainer((1.0, 2.0), save_every=100, validate_every=2).train())
    assert [each for each in list_events(reports) if each[0] != "Step"] == [
        *(("Validation", 2), ("Saved", 2)),
        ("Validation", 4),
        *(("Validation", 6), ("Saved", 6)),
    ]


def test_without_validation_there_are_only_steps_and_saves(make_trainer: MakeTrainer) -> None:
    assert {name for name, _ in list_events(list(make_trainer(None).train()))} == {"Step", "Saved"}


def test_a_step_reports_rate_tokens_padding_and_epoch(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(accumulate=2)
    steps = [report for report in trainer.train() if isinstance(report, Step)]
    assert [step.lr for step in steps] == [learning_rate(n, trainer.config, 16) for n in range(1, 7)]
    assert {step.tokens for step in steps} == {BATCH.tokens + OTHER.tokens}
    assert {(step.positions, step.padding) for step in steps} == {
        (BATCH.positions + OTHER.positions, BATCH.padding + OTHER.padding)
    }
    assert [step.epoch for step in steps] == list(range(6))
    assert [step.seconds for step in steps] == sorted(step.seconds for step in steps)
    assert trainer.state.tokens == sum(step.tokens for step in steps)


def test_patience_ends_the_run(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer((2.0, 3.0, 3.0, 1.0), steps=100, validate_every=2, patience=2)
    reports = list(trainer.train())
    assert reports[-1] == Stopped(6, "no better loss in 2 validations")
    assert trainer.step == 6
    assert (trainer.state.best, trainer.state.best_step, trainer.state.since_best) == (2.0, 2, 2)
    again = list(trainer.train())
    assert again == [reports[-1]], "training again stops at once"


def test_a_lower_loss_breaks_ties_of_the_score(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer((6.5, 6.3, 6.1, 5.9, 6.0, 6.0), steps=100, validate_every=2, patience=2, best="exact_match")
    reports = list(trainer.train())
    assert reports[-1] == Stopped(12, "no better exact_match in 2 validations")
    assert (trainer.state.best, trainer.state.best_loss, trainer.state.best_step) == (0.0, 5.9, 8)


def test_a_run_ended_by_patience_is_saved(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    settings = {"steps": 100, "validate_every": 2, "save_every": 50, "patience": 2}
    reports = list(make_trainer((2.0, 3.0), **settings).train())
    assert list_events(reports)[-3:] == [("Validation", 6), ("Saved", 6), ("Stopped", 6)]
    found = Checkpoints(tmp_path / "run").load_newest()
    assert found is not None
    resumed = make_trainer((2.0, 3.0), **settings)
    resumed.restore(found.snapshot)
    assert list(resumed.train()) == [reports[-1]]


def test_the_best_score_is_the_highest_if_higher_is_better(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer((1.0, 9.0), best="bleu", validate_every=2)
    best = [report.best for report in trainer.train() if isinstance(report, Validation)]
    assert best == [True, True, True]
    assert trainer.state.best == 6.0


def test_the_main_process_decides_the_best_score(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distributed, "broadcast", lambda world, value: value + 0.5)
    trained = make_trainer()
    list(trained.train())
    assert trained.state.best == 2.5


def test_closing_the_generator_stops_training(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    stream = trainer.stream
    assert isinstance(stream, ListStream)
    reports = trainer.train()
    assert len(list(islice(reports, 2))) == 2
    assert (stream.taken, stream.closed) == (2, False)
    reports.close()  # type: ignore[attr-defined]
    assert stream.closed


def test_the_data_position_is_that_of_the_next_batch(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    positions = [(trainer.state.position.epoch, trainer.state.position.batch) for _ in islice(trainer.train(), 3)]
    assert positions == [(0, 1), (1, 0), (1, 1)]


def test_a_validation_missed_by_an_interruption_runs_on_resume(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    first = make_trainer((2.0,))
    for report in first.train():
        if report.step == 4:
            break
    first.save()
    second = make_trainer((2.0,))
    found = Checkpoints(tmp_path / "run").load_newest()
    assert found is not None
    assert second.restore(found.snapshot)
    assert list_events(list(second.train()))[:2] == [("Validation", 4), ("Step", 5)]


def test_the_waiting_time_for_data_is_reported(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, waits = make_trainer(steps=2), 0.05
    batches = trainer.stream.batches

    def slow_batches(*arguments: Any, **options: Any) -> Iterator[Any]:
        for batch in batches(*arguments, **options):
            time.sleep(waits)
            yield batch

    monkeypatch.setattr(trainer.stream, "batches", slow_batches)
    steps = [each for each in trainer.train() if isinstance(each, Step)]
    assert all(waits <= each.waited <= each.seconds for each in steps)


def test_reporting_in_groups_does_not_change_the_steps(make_trainer: MakeTrainer) -> None:
    """On a GPU, several steps share one synchronisation."""
    alone, grouped = (make_trainer(dropout=0.2, steps=12, folder=name) for name in ("alone", "grouped"))
    grouped._report_interval = 10
    reports = []
    for trainer in (alone, grouped):
        torch.manual_seed(0)
        reports.append([each for each in trainer.train() if not isinstance(each, Saved)])
    for one, other in zip(*reports, strict=True):
        assert vars(one) | {"seconds": 0, "waited": 0} == vars(other) | {"seconds": 0, "waited": 0}
    assert alone.state.tokens == grouped.state.tokens


def test_all_reported_is_true_at_the_end_of_a_group(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(None, steps=100, save_every=100)
    trainer._report_interval = 5
    for report in islice(trainer.train(), 10):
        assert trainer.all_reported == (report.step % 5 == 0)
        assert trainer.step == 5 * ((report.step + 4) // 5)
        assert (
            trainer.state.tokens
            == (trainer.step // 2) * (BATCH.tokens + OTHER.tokens) + (trainer.step % 2) * BATCH.tokens
        )


def test_stop_at_ends_a_group_of_reports(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(None, steps=100, save_every=100)
    trainer._report_interval = 10
    for report in trainer.train(stop_at=7):
        if report.step == 7:
            break
    assert (trainer.step, trainer.all_reported) == (7, True)


def test_a_skipped_step_is_reported_with_its_pairs(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(None, accumulate=2)
    monkeypatch.setattr("attendo.train.update.training_loss", lambda logits, *rest: logits.sum() * float("nan"))
    reports = trainer.train()
    step = next(reports)
    assert isinstance(step, Step)
    assert (step.skipped, step.loss != step.loss, trainer.all_reported) == (True, True, False)
    assert next(reports) == Skipped(1, BATCH.numbers + OTHER.numbers)
    assert trainer.all_reported
    assert (trainer.state.skipped, trainer.state.tokens) == (1, 0)


def test_too_many_skipped_steps_raise_diverged_error(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(None, max_skipped=3)
    monkeypatch.setattr("attendo.train.update.training_loss", lambda logits, *rest: logits.sum() * float("inf"))
    reports: list[Report] = []
    with pytest.raises(DivergedError, check=has_code("training_diverged", steps=3)):
        reports.extend(trainer.train())
    assert trainer.step == 3


def test_a_failed_save_is_reported_and_success_resets_the_count(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(None, max_save_failures=3)
    save = trainer.checkpoints.save

    def fail(snapshot: object) -> Path:
        raise OSError("the disk is gone")

    next(trainer.train())
    for failures in (1, 2):
        monkeypatch.setattr(trainer.checkpoints, "save", fail)
        assert trainer.save() == SaveFailed(1, "the disk is gone", failures)
    monkeypatch.setattr(trainer.checkpoints, "save", save)
    assert isinstance(trainer.save(), Saved)
    monkeypatch.setattr(trainer.checkpoints, "save", fail)
    assert trainer.save() == SaveFailed(1, "the disk is gone", 1)
    trainer.save()
    with pytest.raises(SaveError, check=has_code("checkpoint_saves_failed", count=3)):
        trainer.save()


def test_a_save_reports_folder_and_size_and_stores_facts(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(None)
    next(trainer.train())
    saved = trainer.save()
    assert isinstance(saved, Saved)
    assert saved.folder == str(trainer.checkpoints.path(1))
    assert saved.bytes == sum(path.stat().st_size for path in trainer.checkpoints.path(1).iterdir())
    assert trainer.checkpoints.load(1).facts == {"step": 1, "known": 1}


def test_a_checkpoint_of_a_thread_is_the_state_of_its_step(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    list(make_trainer(ema=0.9).train())
    in_thread = make_trainer(ema=0.9, folder="other", async_checkpoints=True)
    reports = list(in_thread.train())
    saved = [report for report in reports if isinstance(report, Saved)]
    assert [report.step for report in saved] == in_thread.checkpoints.steps() == [3, 4, 6]
    assert reports[-1] == saved[-1]
    for report in saved:
        assert_same_weights(Path(report.folder), tmp_path / "run" / Path(report.folder).name)


def assert_same_weights(found: Path, expected: Path) -> None:
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (found / name).read_bytes() == (expected / name).read_bytes()


def test_training_goes_on_while_a_thread_writes(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer waits for step 5. It would wait forever if training waited for it, and it writes step 3."""
    list(make_trainer(None).train())
    trainer = make_trainer(None, folder="other", async_checkpoints=True)
    save, goes_on = trainer.checkpoints.save, Event()

    def wait_and_save(snapshot: Any) -> Path:
        assert goes_on.wait(PATIENCE)
        return save(snapshot)

    monkeypatch.setattr(trainer.checkpoints, "save", wait_and_save)
    events = []
    for report in trainer.train():
        events += list_events([report])
        if report.step == 5:
            assert trainer.checkpoints.steps() == []
            goes_on.set()
    assert [each for each in events if each[0] == "Saved"] == [("Saved", 3), ("Saved", 6)]
    assert_same_weights(tmp_path / "other/step-00000003", tmp_path / "run/step-00000003")


def test_closing_waits_for_the_thread(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on SIGTERM: the loop is left, then the last step is saved."""
    trainer = make_trainer(None, async_checkpoints=True)
    save, closed = trainer.checkpoints.save, Event()

    def wait_and_save(snapshot: Any) -> Path:
        assert closed.wait(PATIENCE)
        return save(snapshot)

    monkeypatch.setattr(trainer.checkpoints, "save", wait_and_save)
    wait = trainer._writer.wait
    monkeypatch.setattr(trainer._writer, "wait", lambda: (closed.set(), wait()))
    for report in trainer.train():
        if report.step == 4:
            break
    assert trainer.checkpoints.steps() == [3]
    assert isinstance(trainer.save(), Saved)
    assert trainer.checkpoints.steps() == [3, 4]


def test_a_failure_of_the_thread_is_reported(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(None, async_checkpoints=True, save_every=1, max_save_failures=2, keep_last=9)
    save = trainer.checkpoints.save

    def fail(snapshot: Any) -> Path:
        if snapshot.step in (2, 4, 5):
            raise OSError("the disk is gone")
        return save(snapshot)

    monkeypatch.setattr(trainer.checkpoints, "save", fail)
    reports: list[Report] = []
    with pytest.raises(SaveError, check=has_code("checkpoint_saves_failed", count=2)):
        reports.extend(trainer.train())
    assert [report for report in reports if isinstance(report, SaveFailed)] == [
        SaveFailed(2, "the disk is gone", 1),
        SaveFailed(4, "the disk is gone", 1),
    ]
    assert trainer.checkpoints.steps() == [1, 3]


def test_an_error_of_the_thread_that_is_no_disk_error_ends_training(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(None, async_checkpoints=True)
    monkeypatch.setattr(trainer.checkpoints, "save", lambda snapshot: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        list(trainer.train())


@pytest.mark.short(1)
@pytest.mark.parametrize(("keep_last", "final", "kept"), [(1, "best", 1), (3, "best", 3), (3, "average", 5)])
def test_keep_last_and_the_best_checkpoint_are_kept(
    make_trainer: MakeTrainer, keep_last: int, final: str, kept: int
) -> None:
    trainer = make_trainer((1.0, 5.0), steps=20, save_every=1, validate_every=2, keep_last=keep_last, final=final)
    list(trainer.train())
    assert trainer.checkpoints.steps() == [2, *range(21 - kept, 21)]
