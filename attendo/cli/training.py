"""A run from the command line: shown while it trains, saved whether it ends or is interrupted."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attendo.cli.interrupt import interruptible
from attendo.cli.progress import TrainingProgress
from attendo.errors import AttendoError
from attendo.recipes.run import Run
from attendo.train.loop import Step


@dataclass(frozen=True)
class Followed:
    """How a run ended. `exit_code` is 0, or tells which signal stopped it early."""

    model_folder: Path
    seconds: float  # of training
    exit_code: int
    say: Callable[[str], None]


def follow(run: Run) -> Followed:
    """Train to the end, or until Ctrl-C or SIGTERM asks to stop; then save."""
    seconds = 0.0
    with TrainingProgress(run.config.train.steps) as progress, interruptible() as interrupt:
        progress.say_prepared(run.prepared)
        try:
            for report in run.train():
                progress.show(report)
                if isinstance(report, Step):
                    seconds = report.seconds
                if interrupt:
                    break
        except Exception:
            if seconds:  # something was learned, and must not be lost with whatever went wrong
                with suppress(AttendoError, OSError):
                    progress.say(f"the model as far as it has come is in {run.save()}")
            raise
        return Followed(run.save(), seconds, interrupt.exit_code, progress.say)
