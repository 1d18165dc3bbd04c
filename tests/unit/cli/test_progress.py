"""What a person sees of a run: facts and when they are told, on a terminal and elsewhere."""

import io
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from attendo.cli.progress import TrainingProgress
from attendo.train.loop import Saved, SaveFailed, Skipped, Step, Stopped, Validation


def step(number: int, **changes: Any) -> Step:
    """A step of two seconds and a hundred tokens."""
    return replace(Step(number, 3, 2.0, 5e-4, 1.0, 100, 250, 50, 2.0 * number), **changes)


def plain(steps: int, *arguments: Any, **settings: Any) -> TrainingProgress:
    return TrainingProgress(steps, *arguments, **settings, console=Console(file=io.StringIO(), width=80))


def terminal(steps: int, width: int = 100, **settings: Any) -> TrainingProgress:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, _environ={"TERM": "xterm"})
    return TrainingProgress(steps, **settings, console=console)


def said(progress: TrainingProgress) -> list[str]:
    assert isinstance(progress.console.file, io.StringIO)
    return progress.console.file.getvalue().splitlines()


def displayed(progress: TrainingProgress) -> list[str]:
    with progress.console.capture() as captured:
        progress.console.print(progress._render())
    return [line.rstrip() for line in Text.from_ansi(captured.get()).plain.splitlines()]


def test_elsewhere_there_are_about_twenty_lines_with_all_the_facts() -> None:
    progress = plain(2000)
    for number in range(1, 2001):
        progress.show(step(number))
    lines = said(progress)
    assert len(lines) == 21
    assert lines[0].startswith("step 10/2,000  ")
    assert lines[1] == "step 100/2,000  loss 2.000  lr 5.0e-04  50 tokens/s  padding 20.0%  epoch 3  left 1:03:20"
    assert lines[-1].startswith("step 2,000/2,000  ")
    assert lines[-1].endswith("left 0:00:00")


@pytest.mark.parametrize(("steps", "lines"), [(1, 1), (3, 3), (20, 20), (21, 11), (60, 20), (201, 20)])
def test_short_runs_have_few_lines_and_always_the_last_step(steps: int, lines: int) -> None:
    progress = plain(steps)
    for number in range(1, steps + 1):
        progress.show(step(number))
    assert len(said(progress)) == lines
    assert said(progress)[-1].startswith(f"step {steps}/{steps}  ")


def test_a_resumed_run_goes_on_where_it_was() -> None:
    progress = plain(10_000, "bleu", (29.5, 4500))
    progress.show(step(5001, seconds=90_000.0))
    assert progress.done == 5001
    for number in range(5002, 5011):
        progress.show(step(number, seconds=90_000.0 + (number - 5001) * 4.0))
    assert said(progress) == [
        "step 5,010/10,000  loss 2.000  lr 5.0e-04  25 tokens/s  padding 20.0%  epoch 3  left 5:32:40"
        "  best BLEU 29.50 at step 4,500"
    ]


def test_the_first_step_tells_no_speed_instead_of_a_wrong_one() -> None:
    progress = plain(1)
    progress.show(step(1))
    assert said(progress) == ["step 1/1  loss 2.000  lr 5.0e-04  – tokens/s  padding 20.0%  epoch 3  left –"]


def test_loss_and_speed_are_those_of_recent_steps_weighed_by_tokens() -> None:
    progress = plain(200)
    for number in range(1, 101):
        progress.show(step(number, loss=9.0))
    for number in range(101, 201):
        long = number % 2 == 0
        progress.show(step(number, loss=3.0 if long else 1.0, tokens=300 if long else 100, seconds=200.0 + number))
    assert "  loss 2.500  " in said(progress)[-1]
    assert (
        "  202 tokens/s  " in said(progress)[-1]
    )  # 25 x 300 + 24 x 100 in 49 seconds: when the first began is unknown


def test_skipped_steps_are_counted_and_leave_the_loss_a_number() -> None:
    progress = plain(3)
    progress.show(step(1, loss=math.nan, skipped=True))
    progress.show(Skipped(1, (7, 8)))
    progress.show(step(2))
    progress.show(step(3, loss=math.nan, skipped=True))
    assert "  loss –  " in said(progress)[0]
    assert "  loss 2.000  " in said(progress)[2]
    assert [line.split("  ")[-1] for line in said(progress)] == [
        "skipped steps 1",
        "skipped steps 1",
        "skipped steps 2",
    ]


def test_time_left_counts_validation_and_saving_too() -> None:
    clock = [0.0]
    progress = plain(100, clock=lambda: clock[0])
    for number in range(1, 51):
        clock[0] += 2.0 + (4.0 if number == 30 else 0.0)
        progress.show(step(number))
    assert "  left 0:01:44" in said(progress)[-1]  # 50 steps of 2 seconds, and 4 more in 98 before


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2.4, "0:00:02"), (59.6, "0:01:00"), (3600, "1:00:00"), (200_000, "2 d 7:33:20")]
)
def test_time_left_is_written_as_a_clock_shows_it(seconds: float, shown: str) -> None:
    progress = plain(3)
    progress.show(step(1, seconds=1.0))
    progress.show(step(2, seconds=1.0 + seconds))
    assert said(progress)[-1].endswith(f"left {shown}")


def test_every_validation_is_a_line_and_the_best_one_is_remembered() -> None:
    progress = plain(10_000, "bleu")
    progress.show(step(1000))
    progress.show(Validation(1000, 2.34567, {"bleu": 5.25, "exact_match": 40.0}, {}, True))
    progress.show(Validation(1500, 2.5, {"bleu": 4.0, "chrf": 50.5}))
    progress.show(step(2000))
    lines = said(progress)
    assert lines[1] == "step 1,000: validation loss 2.3457  BLEU 5.25  exact match 40.00  best so far"
    assert lines[2] == "step 1,500: validation loss 2.5000  BLEU 4.00  chrF 50.50"
    assert lines[3].endswith("  best BLEU 5.25 at step 1,000")


def test_what_the_model_forgets_of_its_old_pairs_is_shown() -> None:
    progress = plain(10)
    progress.show(Validation(5, 2.5, {"bleu": 20.0}, {}, True, old={"loss": 3.25, "bleu": 30.0}))
    assert said(progress) == [
        "step 5: validation loss 2.5000  BLEU 20.00  old loss 3.2500  old BLEU 30.00  best so far"
    ]


def test_the_best_loss_is_the_best_by_default() -> None:
    progress = plain(1)
    progress.show(Validation(500, 2.34567, best=True))
    progress.show(step(1))
    assert said(progress)[-1].endswith("  best loss 2.3457 at step 500")


def test_only_checkpoints_that_fail_have_a_line() -> None:
    progress = plain(10_000)
    progress.show(Saved(400, "x", 1))
    assert said(progress) == []
    progress.show(SaveFailed(500, "the disk is [full]", 1))
    progress.show(SaveFailed(600, "the disk is [full]", 2))
    progress.show(Stopped(600, "checkpoints [cannot] be saved"))
    progress.show(step(1000))
    lines = said(progress)
    assert lines[:3] == [
        "step 500: the checkpoint could not be saved: the disk is [full]",
        "step 600: the checkpoint could not be saved, 2 times in a row: the disk is [full]",
        "step 600: stopped: checkpoints [cannot] be saved",
    ]
    assert lines[3].endswith("  saved at step 400")


def test_a_terminal_shows_the_facts_below_a_bar() -> None:
    progress = terminal(10_000, best="chrf")
    for number in range(6001, 6101):
        progress.show(step(number, skipped=number == 6050))
    progress.show(Validation(6100, 2.5, {"chrf": 55.125}, {}, True))
    progress.show(Saved(6100, "x", 1))
    bar, pace, so_far = displayed(progress)
    assert bar.strip("━╸╺ ") == "6,100/10,000  left 2:10:00"
    assert 30 < bar.index("╸" if "╸" in bar else "╺") < 60
    assert pace == "loss 2.000   lr 5.0e-04   50 tokens/s   padding 20.0%   epoch 3"
    assert so_far == "best chrF 55.12 at step 6,100   saved at step 6,100   skipped steps 1"


@pytest.mark.parametrize(("waited", "told"), [(0.1, False), (0.5, True)])
def test_waiting_for_data_is_told_where_it_is_worth_a_word(waited: float, told: bool) -> None:
    progress = terminal(10_000, 100)
    for number in range(1, 6):
        progress.show(step(number, waited=waited))  # of two seconds a step
    assert any("waiting for data 25% (train.workers)" in line for line in displayed(progress)) is told


@pytest.mark.parametrize("width", [20, 32, 40, 60, 100])
def test_no_fact_is_broken_on_a_narrow_terminal(width: int) -> None:
    progress = terminal(10_000, width)
    for number in range(1, 6):
        progress.show(step(number))
    lines = displayed(progress)
    facts = [fact for line in lines[1:] for fact in line.split("   ")]
    assert facts == ["loss 2.000", "lr 5.0e-04", "50 tokens/s", "padding 20.0%", "epoch 3"]
    assert all(len(line) <= width for line in lines)


def test_a_terminal_keeps_lines_above_the_display_and_the_last_state_at_the_end() -> None:
    progress = terminal(100)
    with progress:
        progress.print_line("text")
        for number in range(1, 101):
            progress.show(step(number))
        progress.show(Validation(100, 2.5))
    shown = "\n".join(said(progress))
    assert shown.index("text") < shown.index("step 100: validation loss 2.5000") < shown.rindex("100/100")
    assert "step 50/100" not in shown
    assert "left 0:00:00" in shown[shown.rindex("100/100") :]


def test_the_display_is_there_before_the_first_step() -> None:
    assert displayed(terminal(100))[0].endswith("0/100  left –")


def test_a_terminal_without_cursor_movement_gets_plain_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    with TrainingProgress(1, console=console) as progress:
        progress.show(step(1))
    assert said(progress)[0].startswith("step 1/1  loss 2.000")


def test_standard_output_stays_free_for_results(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(1) as progress:
        progress.show(step(1))
        print("a result")
    written = capsys.readouterr()
    assert written.out == "a result\n"
    assert written.err.startswith("step 1/1  ")


def test_the_time_left_never_jumps_by_a_factor_of_ten() -> None:
    """Phases of 20 s at 20 steps/s and at 0.2 steps/s, as on cores that another process uses now and then."""
    progress, seconds, shown = plain(100_000), 0.0, []
    for number in range(1, 4000):
        slow = int(seconds / 20) % 3 == 2
        seconds += 5.0 if slow else 0.05
        progress.show(step(number, seconds=seconds))
        shown.append(progress._statistics.estimate_seconds(progress.steps - number))
    known = [each for each in shown if each is not None]
    assert len(known) > 3900
    assert max(max(a / b, b / a) for a, b in pairwise(known)) < 2
    assert max(known[100:]) / min(known[100:]) < 10
