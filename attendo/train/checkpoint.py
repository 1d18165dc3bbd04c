"""Checkpoints: training state, atomic save, verified load, checkpoint averaging.

checkpoints/step-00001000/  model.safetensors  optimizer.safetensors  random.safetensors  state.json  manifest.json

A checkpoint is written atomically. The newest one is found by listing the folder, without a pointer file. Loading
verifies the manifest and the checksum of every file. If a checkpoint is damaged, the previous one is loaded.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from attendo import atomic_files
from attendo.data.sampler import Position
from attendo.errors import ModelError, UsageError
from attendo.model_files import read_json
from attendo.model_folder import check_manifest, load_weights, tensor_mismatches, write_manifest
from attendo.tensor_files import read_tensors
from attendo.train.optimizer import load_optimizer_tensors, make_optimizer_templates, optimizer_tensors
from attendo.train.random_state import random_state_tensors, restore_random_state
from attendo.train.update import Updater

FORMAT = "attendo.checkpoint"
VERSION = 1
FILES = ("model", "optimizer", "random")
_FOLDER_NAME = re.compile(r"step-(\d{8,})")
LOWER_IS_BETTER = ("loss", "error_rate", "word_error_rate")


@dataclass(frozen=True)
class Snapshot:
    """The complete state that the next step depends on."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # also the EMA and the loss scale, if used
    random: dict[str, Tensor]
    state: dict[str, Any]  # counters, data position, best score so far
    facts: dict[str, Any] = field(default_factory=dict)  # hashes and environment, for the manifest


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The newest intact checkpoint, and the reasons why newer ones were skipped."""

    snapshot: Snapshot
    folder: Path
    skipped_reasons: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, damaged ones included, in ascending order."""
        if not self.folder.is_dir():
            return []
        found = (_FOLDER_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, snapshot: Snapshot) -> Path:
        """Write a checkpoint durably; remove nothing. A `DiskFullError` leaves existing checkpoints unchanged."""
        folder = self.path(snapshot.step)
        if folder.exists():
            if self._is_intact(snapshot.step):  # saving a step again gives the same content: never replace durable data
                return folder
            self._discard(snapshot.step)
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            atomic_files.sync(self.folder.parent)
        tensors = {name: getattr(snapshot, name) for name in FILES}
        size = sum(tensor.nbytes for part in tensors.values() for tensor in part.values())
        with atomic_files.new_folder(folder, bytes_needed=2 * size) as temporary:
            for name, part in tensors.items():
                _write_tensors(temporary / f"{name}.safetensors", part)
            content = json.dumps(snapshot.state, indent=2, ensure_ascii=False)
            atomic_files.write(temporary / "state.json", content.encode())
            write_manifest(temporary, FORMAT, VERSION, {"step": snapshot.step, **snapshot.facts})
        atomic_files.remove_leftovers(self.folder)
        return folder

    def load_newest(self) -> LoadedCheckpoint | None:
        """Load the newest intact checkpoint, or return None if there is none. Raise `ModelError` if all are damaged."""
        reasons: list[str] = []
        for step in reversed(self.steps()):
            try:
                return LoadedCheckpoint(self.load(step), self.path(step), tuple(reasons))
            except ModelError as error:
                reasons.append(str(error))
        if reasons:
            raise ModelError("all_checkpoints_damaged", folder=self.folder, reasons="; ".join(reasons))
        return None

    def load(self, step: int) -> Snapshot:
        """Load one checkpoint. Every file is compared with the manifest before any tensor is read."""
        folder = self.path(step)
        manifest = check_manifest(folder, FORMAT, VERSION)
        expected = {*(f"{name}.safetensors" for name in FILES), "state.json"}
        if manifest["files"].keys() != expected or manifest["facts"].get("step") != step:
            raise ModelError("checkpoint_manifest_mismatch", path=folder / "manifest.json")
        tensors = {name: read_tensors(folder / f"{name}.safetensors") for name in FILES}
        state = read_json(folder / "state.json")
        return Snapshot(step, **tensors, state=state, facts=manifest["facts"])

    def prune(self, keep_last: int, best_step: int | None) -> None:
        """Remove all checkpoints except the last `keep_last` and the best. Call it after a newer one is durable."""
        for step in self.steps()[:-keep_last]:
            if step != best_step:
                self._discard(step)

    def _is_intact(self, step: int) -> bool:
        try:
            self.load(step)
        except ModelError:
            return False
        return True

    def _discard(self, step: int) -> None:
        """Rename the folder before deleting it, so that a partial deletion never looks like a checkpoint."""
        doomed = self.folder / f"{atomic_files.TEMPORARY_PREFIX}old-{self.path(step).name}"
        atomic_files.remove(doomed)
        atomic_files.move(self.path(step), doomed)
        atomic_files.remove(doomed)


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_files.explain_disk_full(path, sum(tensor.nbytes for tensor in content.values())):
        try:
            save_file(content, path)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from None


@dataclass(frozen=True)
class TrainState:
    """Training state besides the weights. Between two identical runs only `seconds` differs."""

    position: Position = field(default_factory=Position)  # of the next batch
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0  # spent in training steps
    validated: int = 0  # last validated step
    best: float | None = None
    best_step: int | None = None
    best_by: str | None = None  # metric of `best`; changing the metric resets the comparison
    since_best: int = 0  # validations since the best one
    skipped: int = 0  # total steps with a non-finite loss or gradient
    skipped_in_a_row: int = 0
    best_loss: float | None = None  # validation loss of the best step; missing in older checkpoints

    def after_validation(self, step: int, value: float, metric: str, loss: float) -> tuple["TrainState", bool]:
        """Return the state after a validation, and whether it is the best. Equal scores are ranked by lower loss."""
        if self._is_improvement(value, metric, loss):
            now = replace(self, validated=step, since_best=0)
            return replace(now, best=value, best_step=step, best_by=metric, best_loss=loss), True
        return replace(self, validated=step, since_best=self.since_best + 1), False

    def _is_improvement(self, value: float, metric: str, loss: float) -> bool:
        if self.best is None or self.best_by not in (None, metric):
            return True
        if value != self.best:
            return value < self.best if metric in LOWER_IS_BETTER else value > self.best
        # If the loss of the best step is unknown, prefer the later step: it usually has the lower loss.
        return metric != "loss" and (self.best_loss is None or loss < self.best_loss)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "TrainState":
        try:
            return cls(**{**content, "position": Position(**content["position"])})
        except (KeyError, TypeError) as error:
            raise ModelError("checkpoint_state_invalid", reason=error) from None


def take_snapshot(updater: Updater, state: TrainState, facts: dict[str, Any]) -> Snapshot:
    placement, network = updater.placement, updater.placement.network
    return Snapshot(
        step=updater.step,
        model=placement.gather({name: weight.detach() for name, weight in network.named_parameters()}),
        optimizer=placement.gather({**optimizer_tensors(updater.optimizer, network), **_extra_tensors(updater)}),
        random=random_state_tensors(updater.device, updater.world),
        state=state.to_json(),
        facts=facts,
    )


def restore(updater: Updater, snapshot: Snapshot) -> tuple[TrainState, bool]:
    """Restore an updater. Return the training state, and whether the random state was restored too.

    Raise `ModelError` if tensors do not fit.
    """
    placement = updater.placement
    _check_tensors("model.safetensors", dict(placement.network.named_parameters()), snapshot.model)
    moments = make_optimizer_templates(placement.network) if snapshot.step else {}
    _check_tensors("optimizer.safetensors", {**moments, **_extra_tensors(updater)}, snapshot.optimizer)
    model, optimizer = placement.local_shards(snapshot.model), placement.local_shards(snapshot.optimizer)
    load_weights(placement.network, model)
    if moments:
        load_optimizer_tensors(updater.optimizer, placement.network, optimizer)
    for name, tensor in _extra_tensors(updater).items():
        tensor.copy_(optimizer[name])
    updater.step = snapshot.step
    exact = restore_random_state(snapshot.random, updater.device, updater.world)
    return TrainState.from_json(snapshot.state), exact


def eval_weights(snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the weights for a model made from this checkpoint: the EMA if there is one."""
    prefix = "average/"
    average = {name.removeprefix(prefix): t for name, t in snapshot.optimizer.items() if name.startswith(prefix)}
    return average or snapshot.model


def _extra_tensors(updater: Updater) -> dict[str, Tensor]:
    """Return the updater's own tensors besides the optimizer's, without copying."""
    average = {} if updater.ema is None else updater.ema.weights
    return {
        "loss_scale": updater.loss_scale,
        "good_steps": updater.good_steps,
        **{f"average/{name}": weight for name, weight in average.items()},
    }


def _check_tensors(file: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    if faults := tensor_mismatches(expected, found):
        shown = "; ".join(faults[:5])
        raise ModelError("checkpoint_does_not_fit", file=file, faults=shown, count=len(faults))


def average_checkpoints(
    checkpoints: Checkpoints, steps: Sequence[int], skipped_reasons: list[str] | None = None
) -> dict[str, Tensor]:
    """Average the weights in float64. Checkpoints are read one at a time to limit memory.

    A damaged checkpoint raises `ModelError`. If `skipped_reasons` is a list, it is skipped and the reason is appended.
    """
    total, count = dict[str, Tensor](), 0
    for step in steps:
        try:
            weights = eval_weights(checkpoints.load(step))
        except ModelError as error:
            if skipped_reasons is None:
                raise
            skipped_reasons.append(str(error))
            continue
        if total and (faults := tensor_mismatches({name: weight.float() for name, weight in total.items()}, weights)):
            raise UsageError(
                "checkpoints_not_averageable",
                path=checkpoints.path(step),
                first=checkpoints.path(steps[0]),
                reason=faults[0],
            )
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
        count += 1
    if not count:
        raise UsageError("no_checkpoint_to_average", folder=checkpoints.folder)
    with torch.no_grad():
        return {name: (weight / count).float() for name, weight in total.items()}
