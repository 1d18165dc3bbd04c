"""Learning curves read from metrics.jsonl, one `History` per run."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attendo.errors import DataError, UsageError

FloatArray = NDArray[np.float64]
XAxis = Literal["step", "seconds", "tokens"]

METRICS_FILE = "metrics.jsonl"
STEP_METRICS = ("loss", "lr")  # reported at every step; all others come from validations


@dataclass(frozen=True)
class History:
    """Metrics of a run: arrays with one value per step or per validation, NaN for a missing value."""

    name: str
    steps: FloatArray
    loss: FloatArray
    lr: FloatArray
    tokens: FloatArray  # cumulative target tokens at the end of each step
    seconds: FloatArray  # cumulative training time at the end of each step
    skipped_steps: FloatArray  # steps without a weight update
    validation_steps: FloatArray  # steps followed by a validation
    scores: dict[str, FloatArray]  # validation scores by name: valid_loss, bleu ...; old_bleu: on the old model's pairs
    best_step: float | None  # the step of the best validation

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that have at least one value."""
        return tuple(name for name in dict.fromkeys((*STEP_METRICS, *self.scores)) if len(self.curve(name)[0]))

    def curve(self, metric: str) -> tuple[FloatArray, FloatArray]:
        """Return the steps and values of a metric, without missing values."""
        steps, values = self._all_values(metric)
        known = np.isfinite(values)
        return steps[known], values[known]

    def axis_values(self, steps: FloatArray, axis: XAxis) -> FloatArray:
        """Return the positions of these steps on an axis."""
        if axis == "step":
            return steps
        if not len(self.steps):
            raise UsageError("run_has_only_validations", run=self.name)
        return np.interp(steps, self.steps, self.seconds if axis == "seconds" else self.tokens)

    def smooth_loss(self, window: int) -> tuple[FloatArray, FloatArray]:
        """Return the steps, and the mean loss per token over `window` steps around each.

        The window shrinks symmetrically at the start, so the steep beginning is not shown too low. At the end it has
        fewer steps after the centre.
        """
        known = np.isfinite(self.loss)
        tokens = np.diff(self.tokens, prepend=0.0)[known]
        indices = np.arange(len(tokens))
        reach = np.minimum(window // 2, indices)
        first, last = indices - reach, np.minimum(indices + reach + 1, len(tokens))
        sums = [np.concatenate(([0.0], np.cumsum(each))) for each in (self.loss[known] * tokens, tokens)]
        above, below = (each[last] - each[first] for each in sums)
        return self.steps[known], above / np.maximum(below, 1.0)

    def _all_values(self, metric: str) -> tuple[FloatArray, FloatArray]:
        if metric in STEP_METRICS:
            return self.steps, self.loss if metric == "loss" else self.lr
        return self.validation_steps, self.scores.get(metric, np.full(len(self.validation_steps), math.nan))


def read_histories(paths: Sequence[Path]) -> list[History]:
    """Read one history for each run folder or metrics file. The names are unique."""
    files = list({path.resolve(): path for path in map(metrics_path, paths)}.values())
    # The file itself may be a link into a folder with several metrics files, so only the folder is resolved.
    homes = [path.parent.resolve() / ("" if path.name == METRICS_FILE else path.name) for path in files]
    return [_read_history(path, name) for path, name in zip(files, find_unique_names(homes), strict=True)]


def metrics_path(path: Path) -> Path:
    """Return the metrics file of a run folder, or the path itself if it is a file."""
    return path / METRICS_FILE if path.is_dir() else path


@dataclass
class _HistoryBuilder:
    """Lines read so far. A later line replaces an earlier line of the same step: a resumed run repeats steps."""

    steps: dict[int, tuple[float, float, float, float]] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    validations: dict[int, dict[str, float]] = field(default_factory=dict)
    best: dict[int, bool] = field(default_factory=dict)

    def add(self, line: dict[str, Any]) -> None:
        """Add a line. Raise ValueError for missing or invalid fields; ignore unknown kinds."""
        step, kind = line.get("step"), line.get("kind")
        if not isinstance(step, int) or not isinstance(kind, str):
            raise ValueError
        if kind == "step":
            loss, lr, tokens, seconds = (_parse_number(line.get(name)) for name in ("loss", "lr", "tokens", "seconds"))
            if math.isnan(tokens + seconds):
                raise ValueError
            self.steps[step] = (loss, lr, tokens, seconds)
            (self.skipped.add if line.get("skipped", False) else self.skipped.discard)(step)
        elif kind == "validation":
            scores, old = line.get("scores", {}), line.get("old", {})
            if not isinstance(scores, dict) or not isinstance(old, dict):
                raise ValueError
            values = {"valid_loss": line.get("loss"), **scores, **{f"old_{name}": old[name] for name in old}}
            self.validations[step] = {name: _parse_number(value) for name, value in values.items()}
            self.best[step] = bool(line.get("best", False))

    def build(self, name: str) -> History:
        steps, validated = sorted(self.steps), sorted(self.validations)
        rows = np.array([self.steps[step] for step in steps], np.float64).reshape(-1, 4)
        scores = dict.fromkeys(score for step in validated for score in self.validations[step])
        return History(
            name=name,
            steps=np.array(steps, np.float64),
            loss=rows[:, 0],
            lr=rows[:, 1],
            tokens=np.cumsum(np.nan_to_num(rows[:, 2])),
            seconds=rows[:, 3],
            skipped_steps=np.array(sorted(self.skipped), np.float64),
            validation_steps=np.array(validated, np.float64),
            scores={
                score: np.array([self.validations[step].get(score, math.nan) for step in validated]) for score in scores
            },
            best_step=max((float(step) for step in validated if self.best[step]), default=None),
        )


def _read_history(path: Path, name: str) -> History:
    lines = _HistoryBuilder()
    number = 0
    try:
        with path.open("rb") as file:
            for line in file:
                number += 1
                lines.add(_parse_line(line))
    except OSError as error:
        raise DataError("metrics_file_unreadable", path=path, reason=error.strerror, file=METRICS_FILE) from None
    except ValueError:
        raise DataError("metrics_line_invalid", path=path, line=number, file=METRICS_FILE) from None
    if not lines.steps and not lines.validations:
        raise DataError("metrics_file_without_steps", path=path, count=number)
    return lines.build(name)


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):  # still being written, or cut by a crash
            return {"kind": "cut", "step": 0}
        raise ValueError from None
    if not isinstance(content, dict):
        raise ValueError
    return content


def _parse_number(value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    try:
        return float(value)
    except OverflowError:
        raise ValueError from None


def find_unique_names(paths: Sequence[Path]) -> Iterator[str]:
    """Yield for each path the shortest suffix that no other path has."""
    for home in paths:
        others = [other for other in paths if other != home]
        depth = next(
            depth
            for depth in range(1, len(home.parts) + 1)
            if all(other.parts[-depth:] != home.parts[-depth:] for other in others)
        )
        yield str(Path(*home.parts[-depth:]))
