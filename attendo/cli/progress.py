"""Training as a person sees it: a live bar on a terminal, a plain line now and then elsewhere."""

from collections import deque
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from attendo.recipes.run import Prepared
from attendo.train.loop import Report, Step, Validation

LINES = 20  # plain lines over a whole run


class TrainingProgress:
    """Shows reports on standard error: step, loss, tokens a second, time left."""

    def __init__(self, steps: int) -> None:
        self.console = Console(stderr=True)
        self.steps = steps
        self._recent: deque[Step] = deque(maxlen=50)
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[facts]}"),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=steps, facts="")

    def __enter__(self) -> "TrainingProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def say_prepared(self, ready: Prepared) -> None:
        pairs = "sentence pairs without end" if ready.train_pairs is None else f"{ready.train_pairs:,} sentence pairs"
        self.say(f"{pairs} to train on, {ready.valid_pairs:,} to validate with")
        if ready.empty_pairs:
            self.say(f"{ready.empty_pairs:,} pairs left out: one side has no text")
        sizes = f"{ready.source_vocab_size:,} source and {ready.target_vocab_size:,} target tokens"
        self.say(f"vocabulary of {sizes}, {ready.parameters:,} parameters")

    def show(self, report: Report) -> None:
        if isinstance(report, Validation):
            self.say(f"step {report.step}: validation loss {report.loss:.4f}")
            return
        self._recent.append(report)
        facts = self._facts(report)
        self._progress.update(self._task, completed=report.step, facts=facts)
        if not self.console.is_terminal and report.step % max(1, self.steps // LINES) == 0:
            left = report.seconds / report.step * (self.steps - report.step)
            self.say(f"step {report.step}/{self.steps}  {facts}  left {left:.0f} s")

    def _facts(self, step: Step) -> str:
        loss = sum(each.loss * each.tokens for each in self._recent) / sum(each.tokens for each in self._recent)
        first = self._recent[0]
        seconds = step.seconds - first.seconds
        tokens = sum(each.tokens for each in self._recent) - first.tokens
        speed = f"{tokens / seconds:,.0f} tokens/s" if seconds > 0 else "..."
        return f"loss {loss:.3f}  lr {step.lr:.1e}  {speed}"
