"""The training loop as a stream of reports."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from learning import BATCH, OTHER, ListStream, config, learner

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

Trainers = Callable[..., Trainer]


@pytest.fixture
def trainer(tmp_path: Path) -> Trainers:
    """Makes one whose validation losses are given, one after the other; the last one stays."""

    def make(
        losses: tuple[float, ...] | None = (3.0, 2.0, 1.0), dropout: float = 0.0, folder: str = "run", **changes: Any
    ) -> Trainer:
        left = list(losses or ())

        def validate(step: int) -> Validation:
            return Validation(
                step, left.pop(0) if len(left) > 1 else left[0], {"bleu": float(step), "exact_match": 0.0}
            )

        checkpoints = Checkpoints(tmp_path / folder)
        trained = learner(config(**changes), dropout=dropout)
        return Trainer(trained, ListStream(), validate if losses else None, checkpoints, {"known": 1})

    return make


def told(reports: list[Report]) -> list[tuple[str, int]]:
    return [(type(report).__name__, report.step) for report in reports]


def test_there_is_a_step_for_every_update_and_the_rest_when_it_is_due(trainer: Trainers) -> None:
    reports = list(trainer().train())
    steps = [("Step", n) for n in range(1, 7)]
    assert (
        told(reports)
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


def test_a_validation_that_is_not_the_best_is_no_reason_to_save(trainer: Trainers) -> None:
    reports = list(trainer((1.0, 2.0), save_every=100, validate_every=2).train())
    assert [each for each in told(reports) if each[0] != "Step"] == [
        *(("Validation", 2), ("Saved", 2)),
        ("Validation", 4),
        *(("Validation", 6), ("Saved", 6)),
    ]


def test_without_validation_there_are_steps_and_saves(trainer: Trainers) -> None:
    assert {name for name, _ in told(list(trainer(None).train()))} == {"Step", "Saved"}


def test_a_step_tells_what_was_done(trainer: Trainers) -> None:
    made = trainer(accumulate=2)
    steps = [report for report in made.train() if isinstance(report, Step)]
    assert [step.lr for step in steps] == [learning_rate(n, made.config, 16) for n in range(1, 7)]
    assert {step.tokens for step in steps} == {BATCH.tokens + OTHER.tokens}
    assert {(step.positions, step.padding) for step in steps} == {
        (BATCH.positions + OTHER.positions, BATCH.padding + OTHER.padding)
    }
    assert [step.epoch for step in steps] == list(range(6))
    assert [step.seconds for step in steps] == sorted(step.seconds for step in steps)
    assert made.state.tokens == sum(step.tokens for step in steps)


def test_a_run_ends_where_patience_does(trainer: Trainers) -> None:
    made = trainer((2.0, 3.0, 3.0, 1.0), steps=100, validate_every=2, patience=2)
    reports = list(made.train())
    assert reports[-1] == Stopped(6, "no better loss in 2 validations")
    assert made.step == 6
    assert (made.state.best, made.state.best_step, made.state.since_best) == (2.0, 2, 2)
    again = list(made.train())
    assert again == [reports[-1]], "it has not become more patient"


def test_a_loss_that_falls_while_the_score_stays_the_same_is_an_improvement(trainer: Trainers) -> None:
    made = trainer((6.5, 6.3, 6.1, 5.9, 6.0, 6.0), steps=100, validate_every=2, patience=2, best="exact_match")
    reports = list(made.train())
    assert reports[-1] == Stopped(12, "no better exact_match in 2 validations")
    assert (made.state.best, made.state.best_loss, made.state.best_step) == (0.0, 5.9, 8)


def test_a_run_that_patience_ends_is_saved_where_it_ends(trainer: Trainers, tmp_path: Path) -> None:
    settings = {"steps": 100, "validate_every": 2, "save_every": 50, "patience": 2}
    reports = list(trainer((2.0, 3.0), **settings).train())
    assert told(reports)[-3:] == [("Validation", 6), ("Saved", 6), ("Stopped", 6)]
    found = Checkpoints(tmp_path / "run").load_newest()
    assert found is not None
    resumed = trainer((2.0, 3.0), **settings)
    resumed.restore(found.snapshot)
    assert list(resumed.train()) == [reports[-1]]


def test_where_more_is_better_the_best_is_the_highest(trainer: Trainers) -> None:
    made = trainer((1.0, 9.0), best="bleu", validate_every=2)
    best = [report.best for report in made.train() if isinstance(report, Validation)]
    assert best == [True, True, True]
    assert made.state.best == 6.0


def test_what_is_best_is_decided_by_the_leading_process(trainer: Trainers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distributed, "broadcast", lambda world, value: value + 0.5)
    trained = trainer()
    list(trained.train())
    assert trained.state.best == 2.5


def test_training_stops_when_nobody_listens(trainer: Trainers) -> None:
    made = trainer()
    stream = made.stream
    assert isinstance(stream, ListStream)
    reports = made.train()
    assert len(list(islice(reports, 2))) == 2
    assert (stream.taken, stream.closed) == (2, False)
    reports.close()  # type: ignore[attr-defined]
    assert stream.closed


def test_the_place_in_the_data_is_that_of_the_next_batch(trainer: Trainers) -> None:
    made = trainer()
    places = [(made.state.position.epoch, made.state.position.batch) for _ in islice(made.train(), 3)]
    assert places == [(0, 1), (1, 0), (1, 1)]


def test_a_validation_that_an_interruption_came_before_is_made_up_for(trainer: Trainers, tmp_path: Path) -> None:
    first = trainer((2.0,))
    for report in first.train():
        if report.step == 4:
            break
    first.save()
    second = trainer((2.0,))
    found = Checkpoints(tmp_path / "run").load_newest()
    assert found is not None
    assert second.restore(found.snapshot)
    assert told(list(second.train()))[:2] == [("Validation", 4), ("Step", 5)]


def test_the_time_without_a_batch_is_told(trainer: Trainers, monkeypatch: pytest.MonkeyPatch) -> None:
    made, waits = trainer(steps=2), 0.05
    batches = made.stream.batches

    def slowly(*arguments: Any, **options: Any) -> Iterator[Any]:
        for batch in batches(*arguments, **options):
            time.sleep(waits)
            yield batch

    monkeypatch.setattr(made.stream, "batches", slowly)
    steps = [each for each in made.train() if isinstance(each, Step)]
    assert all(waits <= each.waited <= each.seconds for each in steps)


def test_steps_reported_together_are_the_same_steps(trainer: Trainers) -> None:
    """As on a GPU, which is waited for once for several steps."""
    alone, grouped = (trainer(dropout=0.2, steps=12, folder=name) for name in ("alone", "grouped"))
    grouped._report_interval = 10
    reports = []
    for made in (alone, grouped):
        torch.manual_seed(0)
        reports.append([each for each in made.train() if not isinstance(each, Saved)])
    for one, other in zip(*reports, strict=True):
        assert vars(one) | {"seconds": 0, "waited": 0} == vars(other) | {"seconds": 0, "waited": 0}
    assert alone.state.tokens == grouped.state.tokens


def test_within_a_group_it_is_told_when_all_was_told_and_the_counters_are_whole_throughout(trainer: Trainers) -> None:
    made = trainer(None, steps=100, save_every=100)
    made._report_interval = 5
    for report in islice(made.train(), 10):
        assert made.all_reported == (report.step % 5 == 0)
        assert made.step == 5 * ((report.step + 4) // 5)
        assert made.state.tokens == (made.step // 2) * (BATCH.tokens + OTHER.tokens) + (made.step % 2) * BATCH.tokens


def test_a_group_ends_at_the_step_where_somebody_wants_to_stop(trainer: Trainers) -> None:
    made = trainer(None, steps=100, save_every=100)
    made._report_interval = 10
    for report in made.train(stop_at=7):
        if report.step == 7:
            break
    assert (made.step, made.all_reported) == (7, True)


def test_a_skipped_step_is_told_with_its_pairs_before_it_is_all_told(
    trainer: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(None, accumulate=2)
    monkeypatch.setattr("attendo.train.update.training_loss", lambda logits, *rest: logits.sum() * float("nan"))
    reports = made.train()
    step = next(reports)
    assert isinstance(step, Step)
    assert (step.skipped, step.loss != step.loss, made.all_reported) == (True, True, False)
    assert next(reports) == Skipped(1, BATCH.numbers + OTHER.numbers)
    assert made.all_reported
    assert (made.state.skipped, made.state.tokens) == (1, 0)


def test_too_many_skipped_steps_in_a_row_end_the_run_and_say_what_to_change(
    trainer: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(None, max_skipped=3)
    monkeypatch.setattr("attendo.train.update.training_loss", lambda logits, *rest: logits.sum() * float("inf"))
    reports: list[Report] = []
    with pytest.raises(DivergedError, check=has_code("training_diverged", steps=3)):
        reports.extend(made.train())
    assert made.step == 3


def test_a_failed_save_is_a_report_and_the_next_success_forgets_it(
    trainer: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(None, max_save_failures=3)
    good = made.checkpoints.save

    def bad(snapshot: object) -> Path:
        raise OSError("the disk is gone")

    next(made.train())
    for failures in (1, 2):
        monkeypatch.setattr(made.checkpoints, "save", bad)
        assert made.save() == SaveFailed(1, "the disk is gone", failures)
    monkeypatch.setattr(made.checkpoints, "save", good)
    assert isinstance(made.save(), Saved)
    monkeypatch.setattr(made.checkpoints, "save", bad)
    assert made.save() == SaveFailed(1, "the disk is gone", 1)
    made.save()
    with pytest.raises(SaveError, check=has_code("checkpoint_saves_failed", count=3)):
        made.save()


def test_a_save_tells_where_and_how_much_and_keeps_the_facts(trainer: Trainers) -> None:
    made = trainer(None)
    next(made.train())
    saved = made.save()
    assert isinstance(saved, Saved)
    assert saved.folder == str(made.checkpoints.path(1))
    assert saved.bytes == sum(path.stat().st_size for path in made.checkpoints.path(1).iterdir())
    assert made.checkpoints.load(1).facts == {"step": 1, "known": 1}


@pytest.mark.short(1)
@pytest.mark.parametrize(("keep_last", "final", "kept"), [(1, "best", 1), (3, "best", 3), (3, "average", 5)])
def test_so_many_checkpoints_are_kept_beside_the_best(trainer: Trainers, keep_last: int, final: str, kept: int) -> None:
    made = trainer((1.0, 5.0), steps=20, save_every=1, validate_every=2, keep_last=keep_last, final=final)
    list(made.train())
    assert made.checkpoints.steps() == [2, *range(21 - kept, 21)]
