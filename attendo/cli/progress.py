"""Training and data preparation from the command line: progress display, saving, outcome."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from attendo.cli.output import steady_console
from attendo.cli.signals import interruptible
from attendo.data.prepared import Prepared
from attendo.doctor import quick_faults
from attendo.errors import AttendoError
from attendo.runs.run import Run
from attendo.train.config import TrainConfig
from attendo.train.loop import DivergedError, Report, Saved, SaveFailed, Step, Stopped, Validation
from attendo.train.validation import ValidationStoppedError

if TYPE_CHECKING:
    from attendo.data.prepare import Preparing
    from attendo.runs.run import Run

Say = Callable[[str], None]
LINES = 20  # plain lines over a whole run
EARLY = 10  # steps after which there is a first plain line, so that a mistake is seen before a twentieth of the run
NAMES = {"bleu": "BLEU", "chrf": "chrF"}
WAITS_LONG = 0.1  # share of the time that is worth a word
RECENT = 50  # steps that loss, speed and padding are taken over
REMEMBERED = 60.0  # seconds after which a step counts a third in the time that is left
ENOUGH_STEPS, ENOUGH_SECONDS = 10, 2.0  # the time left is shown after either of them


@dataclass(frozen=True)
class Followed:
    """How a run ended. `exit_code` is 0, or tells which signal stopped it early; `stopped` is any early end."""

    model_folder: Path
    seconds: float  # of training
    stopped: bool
    exit_code: int
    say: Say


def follow(run: Run, stop_at: int | None = None) -> Followed:
    """Prepare, then train to the end, or until Ctrl-C or SIGTERM asks to stop; then save."""
    show_preparing(run)
    run.build()
    standing, config = run.trainer.standing, run.config.train
    best, by = standing.best, standing.best_by or config.best
    before = Best(best, standing.best_step) if best is not None and standing.best_step and by == config.best else None
    console = steady_console(quiet=not run.world.leads)
    with TrainingProgress(config.steps, config.best, before, console) as progress, interruptible() as interrupt:
        say = progress.say
        if stop_at is not None and stop_at <= run.trainer.step:
            say(f"the run stands at step {run.trainer.step} already: nothing to do up to step {stop_at}")
            return Followed(run.folder / "model", standing.seconds, True, 0, say)
        _say_beginning(run, say)
        _look_before_the_first_step(run, say)
        stopped, faults = False, set(run.faults)
        run.asked_to_stop = lambda: bool(interrupt)
        try:
            if run.config.start_from is not None and not run.trainer.step:
                progress.show(run.trainer.validate())  # what the old model is worth on both kinds of text
            for report in run.train(stop_at):
                progress.show(report)
                faults = _say_faults(run, faults, say)
                due = stop_at is not None and run.trainer.step >= stop_at
                if stopped := run.world.any((bool(interrupt) or due) and run.trainer.all_told):
                    break
            else:
                run.finish()
                _say_faults(run, faults, say)
        except ValidationStoppedError:
            stopped = True
        except DivergedError:
            raise
        except Exception:
            _save_what_is_whole(run)
            raise
        if stopped:
            _save_early(run, say)
        return Followed(run.folder / "model", run.trainer.standing.seconds, stopped, interrupt.exit_code, say)


def say_end(done: Followed) -> None:
    """Where the model is; a run that was stopped early leaves with its exit code instead."""
    if done.stopped:
        raise typer.Exit(done.exit_code)
    done.say(f"model written to {done.model_folder}")


def _look_before_the_first_step(run: Run, say: Say) -> None:
    """What would waste the whole run stops it; what is worth a change is said."""
    if run.trainer.step:
        return
    if run.world.size > 1:  # a check on one rank alone would leave the others waiting
        say("with several processes the first look at data and network is left out: attendo doctor has it")
        return
    for finding in quick_faults(run):
        if finding.level == "fault" and finding.stops:
            raise finding.error()
        say(f"{finding.level}: {finding.line}")


def _save_what_is_whole(run: Run) -> None:
    """What was learned must not be lost with whatever went wrong.

    Amid an update there is nothing to save: what would go on from it would be another run. And saving takes all ranks,
    which do not know of this.
    """
    if run.trainer.all_told and run.world.size == 1:
        with suppress(AttendoError, OSError, RuntimeError, MemoryError):  # what went wrong first is to be told
            run.save()


def _save_early(run: Run, say: Say) -> None:
    saved = run.save()
    if isinstance(saved, SaveFailed):
        raise AttendoError("final_checkpoint_not_saved", step=saved.step, reason=saved.reason)
    if not run.world.agreed((run.folder / "model").exists()):
        run.finish()
    say(f"stopped at step {saved.step}, saved; go on with: attendo train --resume {run.folder}")


def _say_faults(run: Run, known: set[str], say: Say) -> set[str]:
    """Each once while it lasts, however its wording changes."""
    faults = run.faults
    for name in sorted(faults.keys() - known):
        say(f"warning: {faults[name]}")
    if known and not faults:
        say("everything can be written again")
    return set(faults)


def _say_beginning(run: Run, say: Say) -> None:
    for warning in run.warnings:
        say(f"warning: {warning}")
    data = run.data
    if data.window is None or data.valid_windows is None:
        say(f"{data.pairs:,} sentence pairs to train on, {len(data.valid):,} to validate with")
    else:
        windows = f"{data.pairs:,} windows of {data.window} tokens"
        say(f"{windows} to train on, {len(data.valid_windows):,} to validate with")
    for corpus in data.corpora:
        if corpus.cut:
            say(f"{corpus.name}: {corpus.cut:,} sources cut to data.cut_source")
        if corpus.bad:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(corpus.bad.items()))
            say(f"{corpus.name}: lines left out: {reasons} (listed in {data.folder / 'bad-lines.tsv'})")
    sizes = f"{data.source_tokenizer.vocab_size:,} source and {data.target_tokenizer.vocab_size:,} target tokens"
    joint = data.source_tokenizer is data.target_tokenizer
    parameters = sum(weight.numel() for weight in run.model.network.parameters())
    vocabulary = (
        f"one vocabulary of {data.source_tokenizer.vocab_size:,} tokens" if joint else f"vocabularies of {sizes}"
    )
    say(f"{vocabulary}, {parameters:,} parameters, {run.trainer.learner.precision} on {run.device}")
    say(plan(run.config.train, data))
    if run.config.train.sharding == "full":
        say(_sharding(run.world.size))
    if run.trainer.learner.compiles != "off":
        say('compiling: the first steps may take minutes (train.compile = "off" begins at once)')
    if run.trainer.step:
        say(f"going on from step {run.trainer.step}")


def plan(config: TrainConfig, data: Prepared) -> str:
    """How long a run is, in one sentence."""
    positions = max(data.source_tokens, data.target_tokens) + data.pairs
    epochs = config.steps * config.accumulate * config.batch_tokens / positions
    times = math.ceil(config.steps / config.validate_every)
    parts = [
        f"{config.steps:,} steps, about {epochs:,.0f} epochs"
        if epochs >= 1.5 and data.window is None
        else f"{config.steps:,} steps",
        f"a validation every {config.validate_every:,} steps" if times > 1 else "a validation at the end",
    ]
    if 0 < config.patience < times:
        parts.append(f"stops early after {config.patience} validations without a better {config.best}")
    return "; ".join(parts)


def _sharding(processes: int) -> str:
    if processes == 1:
        return 'train.sharding = "full" changes nothing: there is one process, and it holds all weights'
    return f"weights, gradients and moments are divided among {processes} processes; nothing is compiled"


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


def show_preparing(run: "Run", verify: bool = False) -> None:
    """Prepare the data of a run, telling how far it is."""
    with told() as tell:
        for report in run.prepare(verify):
            tell(report)


def follow_preparing(reports: Iterable["Preparing"]) -> None:
    with told() as tell:
        for report in reports:
            tell(report)


@contextmanager
def told() -> Iterator["Teller"]:
    console = steady_console()
    if not console.is_terminal:
        yield Teller(console)
        return
    with console.status("preparing ...") as status:
        yield Teller(console, status.update)


class Teller:
    """Says each new stage once, or keeps one line up to date where there is a terminal."""

    def __init__(self, console: Console, update: object = None) -> None:
        self._console, self._update = console, update
        self._stage = ""

    def __call__(self, report: "Preparing") -> None:
        if callable(self._update):
            of = "" if report.of is None else f" of {report.of:,}"
            self._update(f"{report.stage}: {report.lines:,}{of} lines")
        elif report.stage != self._stage:
            self._stage = report.stage
            self._console.print(f"{report.stage} ...", highlight=False, markup=False)
