"""Report sinks: metrics.jsonl, decoded samples, skipped steps, TensorBoard.

A sink has three methods, so that users can add their own. Built-in sinks never end a run: `fault` reports write errors.
"""

import json
import math
import os
from collections import deque
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attendo import atomic_files
from attendo.errors import AttendoError, LocalizedText, UsageError
from attendo.explore.curves import METRICS_FILE
from attendo.runs.run_folder import SKIPPED_FILE
from attendo.train.loop import Report, Saved, Skipped, Step, Validation

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

MAX_QUEUED_LINES = 10_000  # lines buffered while the disk is full; then the oldest are dropped


@runtime_checkable
class Sink(Protocol):
    """Receives every report of a run."""

    def open(self, folder: Path, step: int) -> None:
        """Start in a run folder after `step` updates. Discard earlier output for later steps."""

    def write(self, report: Report) -> None: ...

    def close(self) -> None: ...


class MetricsFile:
    """One line of JSON per report, appended atomically."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self._queue: deque[bytes] = deque(maxlen=MAX_QUEUED_LINES)
        self._lost = 0
        self._handle: int | None = None
        self._has_partial_write = False  # a failed write may have left a partial line after the complete ones

    def open(self, folder: Path, step: int) -> None:
        """Keep the lines up to this step. Unreadable lines, such as a truncated last one, are removed."""
        self._path = folder / METRICS_FILE
        try:
            content = self._path.read_bytes() if self._path.exists() else b""
            valid = b"".join(line + b"\n" for line in content.split(b"\n") if _parse_step(line) <= step)
            if valid != content:
                atomic_files.replace_file(self._path, valid)
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise AttendoError("metrics_file_not_writable", path=self._path, reason=error.strerror) from None
        self._valid_bytes = len(valid)

    def write(self, report: Report) -> None:
        self._lost += len(self._queue) == MAX_QUEUED_LINES
        self._queue.append(report_to_json(report).encode())
        self._flush(sync=isinstance(report, Saved))

    def close(self) -> None:
        if self._handle is None:
            return
        self._flush(sync=True)
        os.close(self._handle)
        self._handle = None

    def _flush(self, sync: bool) -> None:
        try:
            self._append(b"".join(self._queue), sync)
        except OSError as error:
            self._has_partial_write = True
            text = "{path}: {reason}; {waiting} lines wait, {lost} are lost"
            text = text if self._lost else "{path}: {reason}; {waiting} lines wait"
            self.fault = LocalizedText(
                text,
                path=self._path,
                reason=LocalizedText(error.strerror or ""),
                waiting=len(self._queue),
                lost=self._lost,
            )
            return
        self._queue.clear()
        lost = LocalizedText("{path}: {lost} lines are lost", path=self._path, lost=self._lost)
        self.fault = lost if self._lost else None

    def _append(self, content: bytes, sync: bool) -> None:
        assert self._handle is not None, "open comes first"
        if self._has_partial_write:
            os.ftruncate(self._handle, self._valid_bytes)
            self._has_partial_write = False
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        if sync:
            os.fsync(self._handle)
        self._valid_bytes += len(content)


class SampleFile:
    """Outputs for some validation sentences: one text file per validation."""

    def __init__(self) -> None:
        self.fault: str | None = None

    def open(self, folder: Path, step: int) -> None:
        self._folder = folder / "validation"
        for path in self._folder.glob("step-*.txt"):
            number = path.stem.removeprefix("step-")
            if number.isdecimal() and int(number) > step:
                path.unlink()

    def write(self, report: Report) -> None:
        if not isinstance(report, Validation) or not report.samples:
            return
        # The output of an untrained model may contain invalid UTF-8.
        content = _format_samples(report).encode(errors="backslashreplace")
        self.fault = _write_file(self._folder / f"step-{report.step:08d}.txt", content, make_folder=True)

    def close(self) -> None:
        pass


class TensorBoard:
    """The same numbers as event files in RUN/tensorboard. It stops after an error; metrics.jsonl has all numbers."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self._writer: SummaryWriter | None = None
        self._previous: Step | None = None

    def open(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("tensorboard_not_installed") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, report: Report) -> None:
        if self._writer is None:
            return
        scalars: dict[str, float] = {}
        if isinstance(report, Step):
            scalars = _step_scalars(report, self._previous)
            self._previous = report
        elif isinstance(report, Validation):
            scalars = {f"valid/{name}": value for name, value in {"loss": report.loss, **report.scores}.items()}
            scalars |= {f"old/{name}": value for name, value in report.old.items()}
        try:
            for name, value in scalars.items():
                if math.isfinite(value):
                    self._writer.add_scalar(name, value, report.step)
        except OSError as error:
            self._give_up(error)
            self.close()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        reason = LocalizedText(error.strerror) if error.strerror else str(error)
        self.fault = LocalizedText("TensorBoard: {reason}; nothing more is written for it in this run", reason=reason)


def report_to_json(report: Report) -> str:
    """Format a report as a line of metrics.jsonl, without samples and missing values.

    Non-finite numbers are null, as JSON has no NaN.
    """
    found = {each.name: getattr(report, each.name) for each in fields(report) if each.name != "samples"}
    values = {name: value for name, value in found.items() if value is not None}
    return json.dumps({"kind": type(report).__name__.lower(), **_replace_non_finite(values)}, allow_nan=False) + "\n"


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replace_non_finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parse_step(line: bytes) -> float:
    """Return the step of a line; infinity if the line is unreadable."""
    with suppress(ValueError, RecursionError):
        content = json.loads(line)
        if isinstance(content, dict) and isinstance(step := content.get("step"), int):
            return step
    return math.inf


def _step_scalars(step: Step, previous: Step | None) -> dict[str, float]:
    scalars = {"train/loss": step.loss, "train/lr": step.lr}
    scalars |= {f"train/{n}": v for n, v in (("reward", step.reward), ("entropy", step.entropy)) if v is not None}
    if previous is not None and step.seconds > previous.seconds:
        scalars["train/tokens_per_second"] = step.tokens / (step.seconds - previous.seconds)
    return scalars


def _format_samples(report: Validation) -> str:
    lines = [f"step {report.step}{', the best so far' if report.best else ''}", f"loss {report.loss:.4f}"]
    lines += [
        f"{name} {value:.4f}  {report.signatures.get(name, '')}".rstrip() for name, value in report.scores.items()
    ]
    for number, sample in enumerate(report.samples, 1):
        lines += ["", f"{number}", f"source     {sample.source}", f"output     {sample.output}"]
        lines += [f"reference  {sample.reference}"]
    return "\n".join(lines) + "\n"


class SkippedStepsFile:
    """A sink for skipped steps. The file exists once a step was skipped, and is rewritten each time, which is rare."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self._steps: dict[int, Skipped] = {}

    def open(self, folder: Path, step: int) -> None:
        self._path = folder / SKIPPED_FILE
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        known = [Skipped(each["step"], tuple(each["pairs"])) for each in map(json.loads, lines)]
        self._steps = {each.step: each for each in known if each.step <= step}
        if len(self._steps) < len(known):
            self._write()

    def write(self, report: Report) -> None:
        if isinstance(report, Skipped):
            self._steps[report.step] = report
            self._write()

    def close(self) -> None:
        if self.fault is not None:
            self._write()

    def _write(self) -> None:
        content = "".join(json.dumps(asdict(each)) + "\n" for each in self._steps.values())
        self.fault = _write_file(self._path, content.encode())


def _write_file(path: Path, content: bytes, make_folder: bool = False) -> str | None:
    """Write or replace a file. Return the fault if that fails."""
    try:
        if make_folder:
            path.parent.mkdir(exist_ok=True)
        atomic_files.replace_file(path, content)
    except OSError as error:
        return LocalizedText("{file}: {reason}", file=path, reason=LocalizedText(error.strerror or ""))
    return None
