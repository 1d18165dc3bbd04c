"""Training as a person sees it: a live display on a terminal, a plain line now and then elsewhere."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from attendo.cli.steady import steady_console
from attendo.train.reports import Report, Saved, SaveFailed, Step, Stopped, Validation

LINES = 20  # plain lines over a whole run
EARLY = 10  # steps after which there is a first plain line, so that a mistake is seen before a twentieth of the run
NAMES = {"bleu": "BLEU", "chrf": "chrF"}
WAITS_LONG = 0.1  # share of the time that is worth a word
RECENT = 50  # steps that loss, speed and padding are taken over
REMEMBERED = 60.0  # seconds after which a step counts a third in the time that is left
ENOUGH_STEPS, ENOUGH_SECONDS = 10, 2.0  # the time left is shown after either of them


@dataclass(frozen=True)
class Best:
    """The best validation so far."""

    value: float
    step: int


class TrainingProgress:
    """Shows the reports of a run on standard error. Of a resumed run `best_before` is what it had reached."""

    def __init__(
        self,
        steps: int,
        best: str = "loss",
        best_before: Best | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or steady_console()
        self.steps = steps
        self.done = 0
        self._best_name = best
        self._best = best_before
        self._pace = _Pace(clock)
        self._seen = 0
        self._skipped = 0
        self._saved: int | None = None
        self._shown = _Shown()
        live = self.console.is_terminal and not self.console.is_dumb_terminal
        # Results may go through a pipe meanwhile: standard output stays what it is.
        self._live = Live(get_renderable=self._display, console=self.console, redirect_stdout=False) if live else None

    def __enter__(self) -> "TrainingProgress":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(self, report: Report) -> None:
        match report:
            case Step():
                self._show_step(report)
            case Validation():
                self._show_validation(report)
            case Saved():
                self._saved = report.step
            case SaveFailed():
                row = f", {report.failures} times in a row" if report.failures > 1 else ""
                self.say(f"step {report.step:,}: the checkpoint could not be saved{row}: {report.reason}")
            case Stopped():
                self.say(f"step {report.step:,}: stopped: {report.reason}")
        if self._live:
            self._shown = _Shown(self.done, self._left(), self._pace.facts(), self._so_far())

    def _show_step(self, step: Step) -> None:
        self.done = step.step
        self._seen += 1
        self._skipped += step.skipped
        self._pace.add(step)
        every = math.ceil(self.steps / LINES)
        due = step.step % every == 0 or step.step == self.steps or self._seen == EARLY < every
        if self._live is None and due:
            facts = (*self._pace.facts(), self._left(), *self._so_far())
            self.say("  ".join((f"step {step.step:,}/{self.steps:,}", *facts)))

    def _show_validation(self, report: Validation) -> None:
        scores = "".join(f"  {_score(name, value)}" for name, value in report.scores.items())
        scores += "".join(f"  old {_score(name, value)}" for name, value in report.old.items())
        note = ""
        if report.best:
            note = "  best so far"
            value = report.loss if self._best_name == "loss" else report.scores.get(self._best_name, math.nan)
            self._best = Best(value, report.step)
        self.say(f"step {report.step:,}: validation loss {report.loss:.4f}{scores}{note}")

    def _so_far(self) -> list[str]:
        """What the run as a whole has come to."""
        facts = []
        if self._best is not None:
            facts.append(f"best {_score(self._best_name, self._best.value)} at step {self._best.step:,}")
        if self._saved is not None:
            facts.append(f"saved at step {self._saved:,}")
        if self._skipped:
            facts.append(f"skipped steps {self._skipped:,}")
        return facts

    def _left(self) -> str:
        seconds = self._pace.seconds_for(self.steps - self.done)
        return "left –" if seconds is None else f"left {_duration(seconds)}"

    def _display(self) -> Group:
        """Called by the thread that redraws, which therefore looks at one finished whole."""
        shown = self._shown
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True)
        bar = ProgressBar(self.steps, shown.done, complete_style="cyan", finished_style="cyan")
        row.add_row(bar, f"{shown.done:,}/{self.steps:,}", shown.left)
        lines = (*_packed(shown.pace, self.console.width), *_packed(shown.so_far, self.console.width))
        return Group(row, *map(Text, lines))


@dataclass(frozen=True)
class _Shown:
    """What the live display says."""

    done: int = 0
    left: str = "left –"
    pace: Sequence[str] = ()
    so_far: Sequence[str] = ()


class _Pace:
    """Means over the last steps, and what they say about the time to come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recent: deque[Step] = deque(maxlen=RECENT)
        self._begun: tuple[float, float] | None = None  # clock and seconds of training at the first step seen here
        self._last: Step | None = None
        self._seen = 0
        self._steps = self._seconds = 0.0  # that were seen, each of them counting less the longer ago it was
        self._rest = 1.0  # seconds on the clock for each second of training: validation and saving take time too

    def add(self, step: Step) -> None:
        self._recent.append(step)
        self._seen += 1
        now = self._clock()
        if self._begun is None:
            self._begun = now, step.seconds
        if self._last is not None:
            self._count(step.step - self._last.step, step.seconds - self._last.seconds)
        self._last = step
        begun, before = self._begun
        if step.seconds > before:
            self._rest = max(1.0, (now - begun) / (step.seconds - before))

    def _count(self, steps: int, seconds: float) -> None:
        """One slow step among many hardly counts; a pace that lasts counts in full after some minutes."""
        kept = math.exp(-seconds / REMEMBERED)
        self._steps, self._seconds = self._steps * kept + steps, self._seconds * kept + seconds

    def facts(self) -> list[str]:
        if not self._recent:
            return []
        learned = [step for step in self._recent if not step.skipped]
        tokens = sum(step.tokens for step in learned)
        loss = sum(step.loss * step.tokens for step in learned) / tokens if tokens else math.nan
        padding = sum(step.padding for step in self._recent) / max(1, sum(step.positions for step in self._recent))
        last = self._recent[-1]
        waiting = self._waiting()
        return [
            f"loss {loss:.3f}" if tokens else "loss –",
            f"lr {last.lr:.1e}",
            self._speed(),
            f"padding {padding:.1%}",
            f"epoch {last.epoch}",
            *([f"waiting for data {waiting:.0%} (train.workers)"] if waiting >= WAITS_LONG else []),
        ]

    def seconds_for(self, steps: int) -> float | None:
        """None as long as too little was seen: the first steps of a process are slow."""
        if not self._steps or (self._seen < ENOUGH_STEPS and self._seconds < ENOUGH_SECONDS and steps):
            return None
        return steps * self._rest * self._seconds / self._steps

    def _waiting(self) -> float:
        """Share of the time in which there was nothing to learn from."""
        seconds = self._recent[-1].seconds - self._recent[0].seconds
        return (sum(step.waited for step in self._recent) - self._recent[0].waited) / seconds if seconds > 0 else 0.0

    def _speed(self) -> str:
        seconds = self._recent[-1].seconds - self._recent[0].seconds
        tokens = sum(step.tokens for step in self._recent) - self._recent[0].tokens  # when it began is not known
        return f"{tokens / seconds:,.0f} tokens/s" if seconds > 0 else "– tokens/s"


def _score(name: str, value: float) -> str:
    if name == "loss":
        return f"loss {value:.4f}"
    return f"{NAMES.get(name, name.replace('_', ' '))} {value:.2f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{days} d {clock}" if days else clock


def _packed(facts: Sequence[str], width: int) -> list[str]:
    """As many facts in a line as fit, none of them broken."""
    lines: list[str] = []
    for fact in facts:
        if lines and len(lines[-1]) + 3 + len(fact) <= width:
            lines[-1] += "   " + fact
        else:
            lines.append(fact)
    return lines
