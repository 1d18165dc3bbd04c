"""Training and data preparation from the command line: progress display, saving, outcome."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from attendo.cli.language import count_columns, localise, say, translate
from attendo.cli.output import make_stderr_console, print_stderr
from attendo.cli.signals import defer_signals
from attendo.data.prepared import PreparedData
from attendo.errors import AttendoError, LocalizedText
from attendo.recipes.jobs import TrainingJob, TrainingJobFinished, TrainingJobStarted, run_jobs
from attendo.runs.run import Run
from attendo.train.config import TrainConfig
from attendo.train.loop import DivergedError, Report, Saved, SaveFailed, Step, Stopped, Validation
from attendo.train.validation import ValidationStoppedError
from attendo.training import check_before_training, save_after_error

if TYPE_CHECKING:
    from attendo.data.prepare import Preparing

PrintLine = Callable[[str], None]
NUM_PLAIN_LINES = 20  # progress lines per run without a terminal
FIRST_LINE_STEP = 10  # step of the first progress line, so that a mistake shows before 5% of the run
METRIC_NAMES = {"bleu": "BLEU", "chrf": "chrF"}
MIN_WAITING_SHARE = 0.1  # data waiting time is shown from this share of the time
RECENT_STEPS = 50  # steps for the means of loss, speed and padding
DECAY_SECONDS = 60.0  # time constant of the remaining time estimate: older steps have weight 1/e
MIN_STEPS, MIN_SECONDS = 10, 2.0  # the remaining time is shown after either of them


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run. `exit_code` is 0, or that of the signal which stopped it; `stopped` is any early end."""

    model_folder: Path
    seconds: float  # training time
    stopped: bool
    exit_code: int
    print_line: PrintLine


def train_with_progress(run: Run, stop_at: int | None = None) -> RunOutcome:
    """Prepare the data, train until the end, Ctrl-C or SIGTERM, and save. Show the progress on standard error."""
    show_preparation(run.prepare())
    run.build()
    with _show_training(run) as progress, defer_signals() as interrupt:
        print_line = progress.print_line
        if stop_at is not None and stop_at <= (step := run.trainer.step):
            text = "the run stands at step {step} already: nothing to do up to step {stop_at}"
            print_line(say(text, step=step, stop_at=stop_at))
            return RunOutcome(run.folder / "model", run.trainer.state.seconds, True, 0, print_line)
        _report_start(run, print_line)
        stopped, faults = False, set(run.faults)
        run.stop_requested = lambda: bool(interrupt)
        try:
            if run.config.start_from is not None and not run.trainer.step:
                progress.show(run.trainer.validate())  # scores of the old model on old and new validation text
            for report in run.train(stop_at):
                progress.show(report)
                faults = _report_write_faults(run, faults, print_line)
                due = stop_at is not None and run.trainer.step >= stop_at
                if stopped := run.world.any((bool(interrupt) or due) and run.trainer.all_reported):
                    break
            else:
                run.finish()
                _report_write_faults(run, faults, print_line)
        except ValidationStoppedError:
            stopped = True
        except DivergedError:
            raise
        except Exception:
            save_after_error(run)
            raise
        if stopped:
            _save_early(run, print_line)
        return RunOutcome(run.folder / "model", run.trainer.state.seconds, stopped, interrupt.exit_code, print_line)


def _show_training(run: Run) -> "TrainingProgress":
    config, console = run.config.train, make_stderr_console(quiet=not run.world.is_main)
    return TrainingProgress(config.steps, config.best, _find_best(run), console)


def train_in_parallel(jobs: Sequence[TrainingJob], max_jobs: int) -> None:
    """Run training jobs, at most `max_jobs` at once. Print when one starts or ends. Exit if Ctrl-C or SIGTERM comes."""
    num_finished = 0
    with defer_signals() as interrupt, closing(run_jobs(jobs, max_jobs)) as reports:
        for report in reports:
            if isinstance(report, TrainingJobStarted):
                print_stderr(say("{name}: training, log in {log}", name=report.job.name, log=report.job.log))
            elif isinstance(report, TrainingJobFinished):
                num_finished += 1
                print_stderr(
                    say(
                        "{name}: done after {seconds:,.0f} s, {num_finished} of {num_jobs}",
                        name=report.job.name,
                        seconds=report.seconds,
                        num_finished=num_finished,
                        num_jobs=len(jobs),
                    )
                )
            elif interrupt:
                print_stderr(say("stopping: the trainings save, and the same command goes on from there"))
                break
    if interrupt:
        raise typer.Exit(interrupt.exit_code)


def _find_best(run: Run) -> tuple[float, int] | None:
    """Return value and step of the best validation of a resumed run, if it is measured by the same metric."""
    state, metric = run.trainer.state, run.config.train.best
    if state.best is None or not state.best_step or (state.best_by or metric) != metric:
        return None
    return state.best, state.best_step


def report_end(outcome: RunOutcome) -> None:
    """Print the path of the model. For a run that stopped early, exit with its exit code instead."""
    if outcome.stopped:
        raise typer.Exit(outcome.exit_code)
    outcome.print_line(say("model written to {model_folder}", model_folder=outcome.model_folder))


def _save_early(run: Run, print_line: PrintLine) -> None:
    saved = run.save()
    if isinstance(saved, SaveFailed):
        raise AttendoError("final_checkpoint_not_saved", step=saved.step, reason=saved.reason)
    if not run.world.broadcast_bool((run.folder / "model").exists()):
        run.finish()
    print_line(
        say(
            "stopped at step {step}, saved; go on with: attendo train --resume {folder}",
            step=saved.step,
            folder=run.folder,
        )
    )


def _report_write_faults(run: Run, known: set[str], print_line: PrintLine) -> set[str]:
    """Print each write fault once while it lasts, even if its text changes."""
    faults = run.faults
    for name in sorted(faults.keys() - known):
        print_line(say("warning: {warning}", warning=localise(faults[name])))
    if known and not faults:
        print_line(say("everything can be written again"))
    return set(faults)


def _report_start(run: Run, print_line: PrintLine) -> None:
    for warning in run.warnings:
        print_line(say("warning: {warning}", warning=localise(warning)))
    data = run.data
    print_line(describe_size(data))
    for line in describe_skipped_lines(data):
        print_line(line)
    sizes = say(
        "{source:,} source and {target:,} target tokens",
        source=data.source_tokenizer.vocab_size,
        target=data.target_tokenizer.vocab_size,
    )
    joint = data.source_tokenizer is data.target_tokenizer
    parameters = sum(weight.numel() for weight in run.model.network.parameters())
    vocabulary = (
        say("one vocabulary of {vocab_size:,} tokens", vocab_size=data.source_tokenizer.vocab_size)
        if joint
        else say("vocabularies of {sizes}", sizes=sizes)
    )
    print_line(
        say(
            "{vocabulary}, {parameters:,} parameters, {precision} on {device}",
            vocabulary=vocabulary,
            parameters=parameters,
            precision=run.trainer.updater.precision,
            device=run.device,
        )
    )
    print_line(describe_plan(run.config.train, data))
    if run.config.train.sharding == "full":
        print_line(_describe_sharding(run.world.size, run.config.train.cpu_offload))
    if run.trainer.updater.compile_mode != "off":
        print_line(say('compiling: the first steps may take minutes (train.compile = "off" begins at once)'))
    if run.trainer.step:
        print_line(say("going on from step {step}", step=run.trainer.step))
    elif run.world.size > 1:
        print_line(say("with several processes the first look at data and network is left out: attendo doctor has it"))
    for finding in check_before_training(run):
        print_line(say("{level}: {line}", level=translate(finding.level), line=finding.line))


def describe_size(data: PreparedData) -> str:
    """Return the numbers of pairs or windows."""
    examples, valid = say("sentence pairs"), len(data.valid)
    if data.window is not None and data.valid_windows is not None:
        examples, valid = say("windows of {window} tokens", window=data.window), len(data.valid_windows)
    return say(
        "{pairs:,} {examples} to train on, {valid:,} to validate with", pairs=data.pairs, examples=examples, valid=valid
    )


def describe_skipped_lines(data: PreparedData) -> Iterator[str]:
    """Yield the numbers of cut sources and of bad lines of each corpus."""
    for corpus in data.corpora:
        if corpus.cut:
            yield say("{name}: {cut:,} sources cut to data.cut_source", name=corpus.name, cut=corpus.cut)
        if corpus.bad:
            reasons = say(", ").join(
                say("{count:,} {reason}", count=count, reason=LocalizedText(reason))
                for reason, count in sorted(corpus.bad.items())
            )
            yield say(
                "{name}: lines left out: {reasons} (listed in {folder})",
                name=corpus.name,
                reasons=reasons,
                folder=data.folder / "bad-lines.tsv",
            )


def describe_plan(config: TrainConfig, data: PreparedData) -> str:
    """Describe the length of a run in one sentence."""
    positions = max(data.source_tokens, data.target_tokens) + data.pairs
    epochs = config.steps * config.accumulate * config.batch_tokens / positions
    times = math.ceil(config.steps / config.validate_every)
    parts = [
        say("{steps:,} steps, about {epochs:,.0f} epochs", steps=config.steps, epochs=epochs)
        if epochs >= 1.5 and data.window is None
        else say("{steps:,} steps", steps=config.steps),
        say("a validation every {validate_every:,} steps", validate_every=config.validate_every)
        if times > 1
        else say("a validation at the end"),
    ]
    if 0 < config.patience < times:
        parts.append(
            say(
                "stops early after {patience} validations without a better {best}",
                patience=config.patience,
                best=config.best,
            )
        )
    return say("; ").join(parts)


def _describe_sharding(processes: int, cpu_offload: bool) -> str:
    if cpu_offload:
        text = "weights, gradients and moments are in host memory, divided among {processes} processes"
        return say(text, processes=processes)
    if processes == 1:
        return say('train.sharding = "full" changes nothing: there is one process, and it holds all weights')
    return say(
        "weights, gradients and moments are divided among {processes} processes; nothing is compiled",
        processes=processes,
    )


class TrainingProgress:
    """Shows the reports of a run on standard error. `best_before` is the best value of a resumed run and its step."""

    def __init__(
        self,
        steps: int,
        best: str = "loss",
        best_before: tuple[float, int] | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or make_stderr_console()
        self.steps = steps
        self.done = 0
        self._best_name = best
        self._best = best_before
        self._statistics = _StepStatistics(clock)
        self._num_steps = 0
        self._skipped = 0
        self._saved: int | None = None
        # Live display: steps done, remaining time, facts about recent steps, facts about the run.
        self._shown: tuple[int, str, Sequence[str], Sequence[str]] = (0, say("left –"), (), ())
        live = self.console.is_terminal and not self.console.is_dumb_terminal
        # Standard output is not redirected, because results may be piped.
        self._live = Live(get_renderable=self._render, console=self.console, redirect_stdout=False) if live else None

    def __enter__(self) -> "TrainingProgress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def print_line(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(self, report: Report) -> None:
        match report:
            case Step():
                self._show_step(report)
            case Validation():
                self._show_validation(report)
            case Saved(weights_only=False):
                self._saved = report.step
            case SaveFailed():
                row = say(", {failures} times in a row", failures=report.failures) if report.failures > 1 else ""
                self.print_line(
                    say(
                        "step {step:,}: the checkpoint could not be saved{row}: {reason}",
                        step=report.step,
                        row=row,
                        reason=report.reason,
                    )
                )
            case Stopped():
                self.print_line(say("step {step:,}: stopped: {reason}", step=report.step, reason=report.reason))
        if self._live:
            self._shown = self.done, self._format_time_left(), self._statistics.summarise(), self._summarise_run()

    def _show_step(self, step: Step) -> None:
        self.done = step.step
        self._num_steps += 1
        self._skipped += step.skipped
        self._statistics.add(step)
        every = math.ceil(self.steps / NUM_PLAIN_LINES)
        due = step.step % every == 0 or step.step == self.steps or self._num_steps == FIRST_LINE_STEP < every
        if self._live is None and due:
            facts = (*self._statistics.summarise(), self._format_time_left(), *self._summarise_run())
            self.print_line("  ".join((say("step {step:,}/{steps:,}", step=step.step, steps=self.steps), *facts)))

    def _show_validation(self, report: Validation) -> None:
        scores = "".join(f"  {_format_score(name, value)}" for name, value in report.scores.items())
        scores += "".join(say("  old {score}", score=_format_score(*score)) for score in report.old.items())
        note = ""
        if report.best:
            note = say("  best so far")
            value = report.loss if self._best_name == "loss" else report.scores.get(self._best_name, math.nan)
            self._best = value, report.step
        self.print_line(
            say(
                "step {step:,}: validation loss {loss:.4f}{scores}{note}",
                step=report.step,
                loss=report.loss,
                scores=scores,
                note=note,
            )
        )

    def _summarise_run(self) -> list[str]:
        """Return facts about the whole run: best score, last checkpoint, skipped steps."""
        facts = []
        if self._best is not None:
            value, step = self._best
            facts.append(say("best {score} at step {step:,}", score=_format_score(self._best_name, value), step=step))
        if self._saved is not None:
            facts.append(say("saved at step {saved:,}", saved=self._saved))
        if self._skipped:
            facts.append(say("skipped steps {skipped:,}", skipped=self._skipped))
        return facts

    def _format_time_left(self) -> str:
        seconds = self._statistics.estimate_seconds(self.steps - self.done)
        return say("left –") if seconds is None else say("left {duration}", duration=format_duration(seconds))

    def _render(self) -> Group:
        """Render one immutable tuple, because the redraw thread calls this method."""
        num_steps, time_left, recent, totals = self._shown
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True)
        bar = ProgressBar(self.steps, num_steps, complete_style="cyan", finished_style="cyan")
        row.add_row(bar, f"{num_steps:,}/{self.steps:,}", time_left)
        lines = (*_wrap_facts(recent, self.console.width), *_wrap_facts(totals, self.console.width))
        return Group(row, *map(Text, lines))


class _StepStatistics:
    """Means over the last steps, and an estimate of the remaining time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recent: deque[Step] = deque(maxlen=RECENT_STEPS)
        self._start: tuple[float, float] | None = None  # clock and training seconds at the first step
        self._last: Step | None = None
        self._num_steps = 0
        self._steps = self._seconds = 0.0  # exponentially decayed sums
        self._wall_clock_factor = 1.0  # clock seconds per training second; validation and saving take time too

    def add(self, step: Step) -> None:
        self._recent.append(step)
        self._num_steps += 1
        now = self._clock()
        if self._start is None:
            self._start = now, step.seconds
        if self._last is not None:
            self._count(step.step - self._last.step, step.seconds - self._last.seconds)
        self._last = step
        start, before = self._start
        if step.seconds > before:
            self._wall_clock_factor = max(1.0, (now - start) / (step.seconds - before))

    def _count(self, steps: int, seconds: float) -> None:
        """Add to the decayed sums. A single slow step has little weight; a lasting change dominates after minutes."""
        decay = math.exp(-seconds / DECAY_SECONDS)
        self._steps, self._seconds = self._steps * decay + steps, self._seconds * decay + seconds

    def summarise(self) -> list[str]:
        if not self._recent:
            return []
        learned = [step for step in self._recent if not step.skipped]
        tokens = sum(step.tokens for step in learned)
        loss = sum(step.loss * step.tokens for step in learned) / tokens if tokens else math.nan
        padding = sum(step.padding for step in self._recent) / max(1, sum(step.positions for step in self._recent))
        last = self._recent[-1]
        waiting = self._waiting_share()
        return [
            say("loss {loss:.3f}", loss=loss) if tokens else say("loss –"),
            *self._summarise_rewards(),
            say("lr {lr:.1e}", lr=last.lr),
            self._format_speed(),
            say("padding {padding:.1%}", padding=padding),
            say("epoch {epoch}", epoch=last.epoch),
            *(
                [say("waiting for data {waiting:.0%} (train.workers)", waiting=waiting)]
                if waiting >= MIN_WAITING_SHARE
                else []
            ),
        ]

    def _summarise_rewards(self) -> list[str]:
        """Return the means of minimum risk training."""
        known = [(step.reward, step.entropy) for step in self._recent if step.reward is not None]
        if not known:
            return []
        reward, entropy = (
            math.fsum(each or 0.0 for each in values) / len(known) for values in zip(*known, strict=True)
        )
        return [say("reward {reward:.2f}", reward=reward), say("entropy {entropy:.3f}", entropy=entropy)]

    def estimate_seconds(self, steps: int) -> float | None:
        """Return the remaining seconds, or None after too few steps: the first steps of a process are slow."""
        if not self._steps or (self._num_steps < MIN_STEPS and self._seconds < MIN_SECONDS and steps):
            return None
        return steps * self._wall_clock_factor * self._seconds / self._steps

    def _waiting_share(self) -> float:
        """Return the share of time spent waiting for data."""
        seconds = self._recent[-1].seconds - self._recent[0].seconds
        return (sum(step.waited for step in self._recent) - self._recent[0].waited) / seconds if seconds > 0 else 0.0

    def _format_speed(self) -> str:
        seconds = self._recent[-1].seconds - self._recent[0].seconds
        tokens = sum(step.tokens for step in self._recent) - self._recent[0].tokens  # its start time is unknown
        return say("{tokens:,.0f} tokens/s", tokens=tokens / seconds) if seconds > 0 else say("– tokens/s")


def _format_score(name: str, value: float) -> str:
    if name == "loss":
        return say("loss {value:.4f}", value=value)
    return f"{METRIC_NAMES.get(name) or translate(name.replace('_', ' '))} {value:.2f}"


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours}:{minutes:02d}:{rest:02d}"
    return say("{days} d {clock}", days=days, clock=clock) if days else clock


def _wrap_facts(facts: Sequence[str], width: int) -> list[str]:
    """Join facts into lines up to the width, without breaking a fact."""
    lines: list[str] = []
    for fact in facts:
        if lines and count_columns(lines[-1]) + 3 + count_columns(fact) <= width:
            lines[-1] += "   " + fact
        else:
            lines.append(fact)
    return lines


def show_preparation(reports: Iterable["Preparing"]) -> None:
    """Print each new stage once, or update one line on a terminal."""
    console, stage = make_stderr_console(), ""
    with console.status(say("preparing ...")) if console.is_terminal else nullcontext() as status:
        for report in reports:
            if status is not None:
                text = "{stage}: {lines:,} lines" if report.of is None else "{stage}: {lines:,} of {total:,} lines"
                status.update(say(text, stage=translate(report.stage), lines=report.lines, total=report.of))
            elif report.stage != stage:
                stage = report.stage
                console.print(f"{translate(stage)} ...", highlight=False, markup=False)
