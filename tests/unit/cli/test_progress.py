"""Training progress on a terminal and in plain output."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from rich.text import Text

from attendo.cli import progress
from attendo.cli.progress import TrainingProgress
from attendo.cli.signals import Interrupt
from attendo.recipes.jobs import TrainingJob, TrainingJobFinished, TrainingJobsPending, TrainingJobStarted
from attendo.train.loop import Saved, SaveFailed, Skipped, Step, Stopped, Validation


def make_step(number: int, **changes: Any) -> Step:
    """A step of two seconds and a hundred tokens."""
    return replace(Step(number, 3, 2.0, 5e-4, 1.0, 100, 250, 50, 2.0 * number), **changes)


def plain_progress(steps: int, *arguments: Any, **settings: Any) -> TrainingProgress:
    return TrainingProgress(steps, *arguments, **settings, console=Console(file=io.StringIO(), width=80))


def terminal_progress(steps: int, width: int = 100, **settings: Any) -> TrainingProgress:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, _environ={"TERM": "xterm"})
    return TrainingProgress(steps, **settings, console=console)


def output_lines(progress: TrainingProgress) -> list[str]:
    assert isinstance(progress.console.file, io.StringIO)
    return progress.console.file.getvalue().splitlines()


def rendered_lines(progress: TrainingProgress) -> list[str]:
    with progress.console.capture() as captured:
        progress.console.print(progress._render())
    return [line.rstrip() for line in Text.from_ansi(captured.get()).plain.splitlines()]


def test_plain_output_has_about_twenty_lines() -> None:
    progress = plain_progress(2000)
    for number in range(1, 2001):
        progress.show(make_step(number))
    lines = output_lines(progress)
    assert len(lines) == 21
    assert lines[0].startswith("step 10/2,000  ")
    assert lines[1] == "step 100/2,000  loss 2.000  lr 5.0e-04  50 tokens/s  padding 20.0%  epoch 3  left 1:03:20"
    assert lines[-1].startswith("step 2,000/2,000  ")
    assert lines[-1].endswith("left 0:00:00")


@pytest.mark.parametrize(("steps", "lines"), [(1, 1), (3, 3), (20, 20), (21, 11), (60, 20), (201, 20)])
def test_short_runs_print_few_lines_and_the_last_step(steps: int, lines: int) -> None:
    progress = plain_progress(steps)
    for number in range(1, steps + 1):
        progress.show(make_step(number))
    assert len(output_lines(progress)) == lines
    assert output_lines(progress)[-1].startswith(f"step {steps}/{steps}  ")


def test_a_resumed_run_continues_its_step_count() -> None:
    progress = plain_progress(10_000, "bleu", (29.5, 4500))
    progress.show(make_step(5001, seconds=90_000.0))
    assert progress.done == 5001
    for number in range(5002, 5011):
        progress.show(make_step(number, seconds=90_000.0 + (number - 5001) * 4.0))
    assert output_lines(progress) == [
        "step 5,010/10,000  loss 2.000  lr 5.0e-04  25 tokens/s  padding 20.0%  epoch 3  left 5:32:40"
        "  best BLEU 29.50 at step 4,500"
    ]


def test_the_first_step_has_no_speed() -> None:
    progress = plain_progress(1)
    progress.show(make_step(1))
    assert output_lines(progress) == ["step 1/1  loss 2.000  lr 5.0e-04  – tokens/s  padding 20.0%  epoch 3  left –"]


def test_loss_and_speed_are_token_weighted_recent_means() -> None:
    progress = plain_progress(200)
    for number in range(1, 101):
        progress.show(make_step(number, loss=9.0))
    for number in range(101, 201):
        long = number % 2 == 0
        progress.show(make_step(number, loss=3.0 if long else 1.0, tokens=300 if long else 100, seconds=200.0 + number))
    assert "  loss 2.500  " in output_lines(progress)[-1]
    assert (
        "  202 tokens/s  " in output_lines(progress)[-1]
    )  # 25 x 300 + 24 x 100 tokens in 49 s: the start time of the first step is unknown


def test_reward_and_entropy_are_recent_means() -> None:
    progress = plain_progress(2)
    for number, (reward, entropy) in enumerate([(50.0, 1.5), (54.0, 1.25)], start=1):
        progress.show(make_step(number, reward=reward, entropy=entropy))
    assert "  reward 52.00  entropy 1.375  " in output_lines(progress)[-1]
    assert "reward" not in output_lines(shown_plain())[-1]


def shown_plain() -> TrainingProgress:
    """The progress of one step without reward."""
    progress = plain_progress(1)
    progress.show(make_step(1))
    return progress


def test_skipped_steps_are_counted_and_excluded_from_the_loss() -> None:
    progress = plain_progress(3)
    progress.show(make_step(1, loss=math.nan, skipped=True))
    progress.show(Skipped(1, (7, 8)))
    progress.show(make_step(2))
    progress.show(make_step(3, loss=math.nan, skipped=True))
    assert "  loss –  " in output_lines(progress)[0]
    assert "  loss 2.000  " in output_lines(progress)[2]
    assert [line.split("  ")[-1] for line in output_lines(progress)] == [
        "skipped steps 1",
        "skipped steps 1",
        "skipped steps 2",
    ]


def test_time_left_includes_validation_and_saving() -> None:
    clock = [0.0]
    progress = plain_progress(100, clock=lambda: clock[0])
    for number in range(1, 51):
        clock[0] += 2.0 + (4.0 if number == 30 else 0.0)
        progress.show(make_step(number))
    assert "  left 0:01:44" in output_lines(progress)[-1]  # 50 steps of 2 s, plus 4 s of other work per 98 s


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2.4, "0:00:02"), (59.6, "0:01:00"), (3600, "1:00:00"), (200_000, "2 d 7:33:20")]
)
def test_time_left_has_clock_format(seconds: float, shown: str) -> None:
    progress = plain_progress(3)
    progress.show(make_step(1, seconds=1.0))
    progress.show(make_step(2, seconds=1.0 + seconds))
    assert output_lines(progress)[-1].endswith(f"left {shown}")


def test_every_validation_is_a_line_and_the_best_is_kept() -> None:
    progress = plain_progress(10_000, "bleu")
    progress.show(make_step(1000))
    progress.show(Validation(1000, 2.34567, {"bleu": 5.25, "exact_match": 40.0}, {}, True))
    progress.show(Validation(1500, 2.5, {"bleu": 4.0, "chrf": 50.5}))
    progress.show(make_step(2000))
    lines = output_lines(progress)
    assert lines[1] == "step 1,000: validation loss 2.3457  BLEU 5.25  exact match 40.00  best so far"
    assert lines[2] == "step 1,500: validation loss 2.5000  BLEU 4.00  chrF 50.50"
    assert lines[3].endswith("  best BLEU 5.25 at step 1,000")


def test_scores_on_old_pairs_are_shown() -> None:
    progress = plain_progress(10)
    progress.show(Validation(5, 2.5, {"bleu": 20.0}, {}, True, old={"loss": 3.25, "bleu": 30.0}))
    assert output_lines(progress) == [
        "step 5: validation loss 2.5000  BLEU 20.00  old loss 3.2500  old BLEU 30.00  best so far"
    ]


def test_the_default_best_score_is_the_loss() -> None:
    progress = plain_progress(1)
    progress.show(Validation(500, 2.34567, best=True))
    progress.show(make_step(1))
    assert output_lines(progress)[-1].endswith("  best loss 2.3457 at step 500")


def test_only_failed_checkpoints_have_a_line() -> None:
    progress = plain_progress(10_000)
    progress.show(Saved(400, "x", 1))
    assert output_lines(progress) == []
    progress.show(SaveFailed(500, "the disk is [full]", 1))
    progress.show(SaveFailed(600, "the disk is [full]", 2))
    progress.show(Stopped(600, "checkpoints [cannot] be saved"))
    progress.show(make_step(1000))
    lines = output_lines(progress)
    assert lines[:3] == [
        "step 500: the checkpoint could not be saved: the disk is [full]",
        "step 600: the checkpoint could not be saved, 2 times in a row: the disk is [full]",
        "step 600: stopped: checkpoints [cannot] be saved",
    ]
    assert lines[3].endswith("  saved at step 400")


def test_a_terminal_shows_statistics_below_a_bar() -> None:
    progress = terminal_progress(10_000, best="chrf")
    for number in range(6001, 6101):
        progress.show(make_step(number, skipped=number == 6050))
    progress.show(Validation(6100, 2.5, {"chrf": 55.125}, {}, True))
    progress.show(Saved(6100, "x", 1))
    bar, pace, state_line = rendered_lines(progress)
    assert bar.strip("━╸╺ ") == "6,100/10,000  left 2:10:00"
    assert 30 < bar.index("╸" if "╸" in bar else "╺") < 60
    assert pace == "loss 2.000   lr 5.0e-04   50 tokens/s   padding 20.0%   epoch 3"
    assert state_line == "best chrF 55.12 at step 6,100   saved at step 6,100   skipped steps 1"


@pytest.mark.parametrize(("waited", "shown"), [(0.1, False), (0.5, True)])
def test_waiting_for_data_is_shown_above_a_threshold(waited: float, shown: bool) -> None:
    progress = terminal_progress(10_000, 100)
    for number in range(1, 6):
        progress.show(make_step(number, waited=waited))  # each step takes 2 s
    assert any("waiting for data 25% (train.workers)" in line for line in rendered_lines(progress)) is shown


@pytest.mark.parametrize("width", [20, 32, 40, 60, 100])
def test_statistics_are_not_broken_on_a_narrow_terminal(width: int) -> None:
    progress = terminal_progress(10_000, width)
    for number in range(1, 6):
        progress.show(make_step(number))
    lines = rendered_lines(progress)
    facts = [fact for line in lines[1:] for fact in line.split("   ")]
    assert facts == ["loss 2.000", "lr 5.0e-04", "50 tokens/s", "padding 20.0%", "epoch 3"]
    assert all(len(line) <= width for line in lines)


def test_a_terminal_keeps_lines_above_the_display() -> None:
    progress = terminal_progress(100)
    with progress:
        progress.print_line("text")
        for number in range(1, 101):
            progress.show(make_step(number))
        progress.show(Validation(100, 2.5))
    shown = "\n".join(output_lines(progress))
    assert shown.index("text") < shown.index("step 100: validation loss 2.5000") < shown.rindex("100/100")
    assert "step 50/100" not in shown
    assert "left 0:00:00" in shown[shown.rindex("100/100") :]


def test_the_display_starts_before_the_first_step() -> None:
    assert rendered_lines(terminal_progress(100))[0].endswith("0/100  left –")


def test_a_terminal_without_cursor_movement_gets_plain_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    with TrainingProgress(1, console=console) as progress:
        progress.show(make_step(1))
    assert output_lines(progress)[0].startswith("step 1/1  loss 2.000")


def test_standard_output_has_only_results(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(1) as progress:
        progress.show(make_step(1))
        print("a result")
    written = capsys.readouterr()
    assert written.out == "a result\n"
    assert written.err.startswith("step 1/1  ")


def test_the_time_left_never_jumps_by_a_factor_of_ten() -> None:
    """Phases of 20 s at 20 steps/s and at 0.2 steps/s, as on cores shared with another process."""
    progress, seconds, shown = plain_progress(100_000), 0.0, []
    for number in range(1, 4000):
        slow = int(seconds / 20) % 3 == 2
        seconds += 5.0 if slow else 0.05
        progress.show(make_step(number, seconds=seconds))
        shown.append(progress._statistics.estimate_seconds(progress.steps - number))
    known = [each for each in shown if each is not None]
    assert len(known) > 3900
    assert max(max(a / b, b / a) for a, b in pairwise(known)) < 2
    assert max(known[100:]) / min(known[100:]) < 10


@pytest.mark.parametrize("exit_code", [0, 130])
def test_an_interrupt_ends_parallel_trainings(
    exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupt makes the jobs save, and the exit code is that of the signal. Without one, all of them finish."""
    interrupt, events = Interrupt(), list[str]()

    def run_jobs(jobs: Sequence[TrainingJob], max_jobs: int) -> Iterator[object]:
        try:
            yield TrainingJobStarted(jobs[0])
            interrupt.exit_code = exit_code
            yield TrainingJobsPending()
            yield TrainingJobFinished(jobs[0], 7.0)
        finally:
            events.append(f"closed after {max_jobs}")

    monkeypatch.setattr(progress, "run_jobs", run_jobs)
    monkeypatch.setattr(progress, "defer_signals", lambda: nullcontext(interrupt))
    with pytest.raises(typer.Exit) if exit_code else nullcontext() as raised:
        progress.train_in_parallel([TrainingJob("teacher 1 of 1", ["train"], Path("0.log"))], 2)
    assert events == ["closed after 2"]
    printed = capsys.readouterr().err
    assert "log in 0.log" in printed
    assert ("done after 7 s, 1 of 1" in printed, "the same command goes on" in printed) == (
        not exit_code,
        bool(exit_code),
    )
    if raised is not None:
        assert raised.value.exit_code == exit_code
