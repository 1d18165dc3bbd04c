"""Checks that a stopped and resumed run equals the uninterrupted run, with the user's data, settings and device.

The run is trained twice in a temporary folder: once uninterrupted, and once stopped several times, each time resumed by
a new process. The results are compared bit for bit.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attendo.errors import LocalizedText, UsageError
from attendo.explore.curves import METRICS_FILE
from attendo.runs.commands import run_attendo
from attendo.runs.config import RunConfig, to_toml
from attendo.train.checkpoint import Checkpoints

MAX_METRIC_PAIRS = 8  # decoded at a validation; its quality does not matter here


@dataclass(frozen=True)
class TrialStep:
    """Progress message: the next step of the trial."""

    description: str


@dataclass(frozen=True)
class ResumeComparison:
    """Comparison of one category of values in both runs."""

    name: str
    count: int
    unequal: int  # number of unequal values
    largest: float = 0.0  # largest difference between two numbers
    location: str = ""  # name of the value with that difference

    @property
    def equal(self) -> bool:
        return self.unequal == 0


class ResumeVerification:
    """Stops the run after each of `stops`, and compares after `steps`.

    `run_command` runs a command in a new process.
    """

    def __init__(
        self,
        config: RunConfig,
        data: Path,
        steps: int,
        device: str,
        run_command: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self.steps = min(steps, config.train.steps)
        if self.steps < 2:
            raise UsageError("resume_check_too_short", steps=self.steps)
        self.validation_step = max(1, self.steps // 2)
        self.stops = sorted({1, self.validation_step, max(1, 3 * self.steps // 4)} - {self.steps})
        self.config = self._make_trial_config(config, data)
        self._device, self._run_command = device, run_command or run_attendo

    def run(self, folder: Path) -> Iterator[TrialStep | ResumeComparison]:
        run_file = folder / "trial.toml"
        run_file.write_text(to_toml(self.config), "utf-8")
        uninterrupted, resumed = folder / "whole", folder / "stopped"
        yield TrialStep(LocalizedText("training {steps} steps", steps=self.steps))
        self._train([str(run_file), "--out", str(uninterrupted)], self.steps)
        for number, stop in enumerate(self.stops):
            again = "training again up to step {stop}, where it is stopped"
            text = "training up to step {stop}, where it is stopped" if number else again
            yield TrialStep(LocalizedText(text, stop=stop))
            begin = [str(run_file), "--out", str(resumed), *_threads_option(uninterrupted)]
            self._train(["--resume", str(resumed)] if number else begin, stop)
        yield TrialStep(LocalizedText("training up to step {steps}", steps=self.steps))
        self._train(["--resume", str(resumed)], self.steps)
        yield from compare_runs(uninterrupted, resumed, self.steps)

    def _train(self, arguments: list[str], stop_at: int) -> None:
        self._run_command(["train", *arguments, "--stop-at", str(stop_at), "--device", self._device])

    def _make_trial_config(self, config: RunConfig, data: Path) -> RunConfig:
        """Return the same training settings with a validation halfway. `steps` stays: learning rates depend on it."""
        training = config.train.replace(
            patience=0,
            validate_every=self.validation_step,
            save_every=self.steps,
            metric_pairs=min(MAX_METRIC_PAIRS, config.train.metric_pairs),
            samples=0,
            final="last",
        )
        tokenizer = {"dropout": config.tokenizer.dropout}  # the rest is in the prepared data
        return config.replace(data={"prepared": data}, tokenizer=tokenizer, train=training)


def _threads_option(run: Path) -> list[str]:
    """Return the option for the thread count. A new run chooses it by timing, and the last bits depend on it."""
    threads = json.loads((run / "run.json").read_bytes()).get("threads")
    return [] if threads is None else ["--threads", str(threads)]


def compare_runs(uninterrupted: Path, resumed: Path, step: int) -> Iterator[ResumeComparison]:
    """Compare two run folders with a checkpoint of this step."""
    one, other = (Checkpoints(folder / "checkpoints").load(step) for folder in (uninterrupted, resumed))
    lines = [_read_metrics(folder) for folder in (uninterrupted, resumed)]
    losses = LocalizedText("losses and gradients of {step} steps", step=step)
    for kind, what in (("step", losses), ("validation", "validations")):
        values = [{name: value for name, value in each.items() if name.startswith(kind)} for each in lines]
        yield _compare_values(what, values[0], values[1])
    yield _compare_values("weights", one.model, other.model)
    yield _compare_values("optimizer and averages", one.optimizer, other.optimizer)
    yield _compare_values("random state", one.random, other.random)
    states = [{name: value for name, value in each.state.items() if name != "seconds"} for each in (one, other)]
    yield _compare_values("place in the data, counters", states[0], states[1])


def suggest_fix(config: RunConfig, device: str) -> str:
    """Suggest a fix if the runs differ."""
    train = config.train
    if device == "cuda" and not train.deterministic:
        return "a GPU adds in a different order each time: try --set train.deterministic=true"
    if train.compile in ("on", "blocks") or (device == "cuda" and train.compile == "auto"):
        return "compiled passes may depend on the shapes seen first: try --set train.compile=off"
    if device == "cuda" and train.capture != "off":
        return "captured CUDA graphs may differ: try --set train.capture=off"
    return "with these settings the runs must be equal: this is a bug of attendo, please report it with the settings"


def _read_metrics(folder: Path) -> dict[str, Any]:
    """Return the numbers of metrics.jsonl that must be equal, by report kind, step and field."""
    found = {}
    for line in (folder / METRICS_FILE).read_text("utf-8").splitlines():
        report = json.loads(line)
        for name in ("loss", "norm", "tokens", "reward", "entropy", "scores"):
            if report["kind"] in ("step", "validation") and name in report:
                found[f"{report['kind']} {report['step']} {name}"] = report[name]
    return found


def _compare_values(label: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> ResumeComparison:
    """Compare values by name. A missing value is unequal."""
    names = one.keys() | other.keys()
    unequal = sorted(
        name for name in names if not (name in one and name in other and _is_identical(one[name], other[name]))
    )
    differences = {name: _difference(one.get(name), other.get(name)) for name in unequal}
    where = max(unequal, key=lambda name: differences[name], default="")
    return ResumeComparison(label, len(names), len(unequal), differences.get(where, 0.0), where)


def _is_identical(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and torch.equal(*(each.contiguous().view(-1).view(torch.uint8) for each in (one, other)))
    return bool(one == other)


def _difference(one: Any, other: Any) -> float:
    """Return the difference of two numbers or tensors; 0 if they cannot be subtracted."""
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape and one.numel():
        return float((one.double() - other.double()).abs().max())
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(abs(one - other))
    return 0.0
