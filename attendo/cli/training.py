"""A run from the command line: shown while it trains, saved whether it ends or is interrupted."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer

from attendo.cli.interrupt import interruptible
from attendo.cli.preparing import show_preparing
from attendo.cli.progress import Best, TrainingProgress
from attendo.cli.steady import steady_console
from attendo.data.prepared import Prepared
from attendo.errors import AttendoError
from attendo.recipes.doctor import quick_faults
from attendo.recipes.run import Run
from attendo.train.config import TrainConfig
from attendo.train.loop import DivergedError
from attendo.train.reports import SaveFailed
from attendo.train.validation import ValidationStoppedError

Say = Callable[[str], None]


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
