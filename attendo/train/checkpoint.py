"""Checkpoints: training state, atomic save, verified load, checkpoint averaging.

checkpoints/step-00001000/  model.safetensors  optimizer.safetensors  random.safetensors  state.json  manifest.json

A checkpoint is whole or not there. The newest one is found by looking, never by a pointer that could lie: its manifest
and the checksum of every file are verified, and a damaged one gives way to the one before it.
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
from attendo.model_folder import check_manifest, read_tensors, tensor_mismatches, write_manifest
from attendo.train.optimizer import expected_optimizer_tensors, load_optimizer_tensors, optimizer_tensors
from attendo.train.random_state import random_state_tensors, restore_random_state
from attendo.train.update import Updater

FORMAT = "attendo.checkpoint"
VERSION = 1
FILES = ("model", "optimizer", "random")
_FOLDER_NAME = re.compile(r"step-(\d{8,})")
LOWER_IS_BETTER = ("loss", "error_rate", "word_error_rate")


@dataclass(frozen=True)
class Snapshot:
    """All that the next step depends on."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # and the moving average and loss scale, where there are such
    random: dict[str, Tensor]
    state: dict[str, Any]  # counters, the place in the data, the best score so far
    facts: dict[str, Any] = field(default_factory=dict)  # hashes and circumstances, for the manifest


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The newest checkpoint that is whole, and why newer ones were passed over."""

    snapshot: Snapshot
    folder: Path
    skipped_reasons: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Of all checkpoints that are there, whole or not; oldest first."""
        if not self.folder.is_dir():
            return []
        found = (_FOLDER_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, snapshot: Snapshot) -> Path:
        """Write it durably; nothing is removed. A `DiskFullError` leaves what was there untouched."""
        folder = self.path(snapshot.step)
        if folder.exists():
            if self._is_intact(snapshot.step):  # a step is the same whoever saves it: never replace what is durable
                return folder
            self._discard(snapshot.step)
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            atomic_files.sync(self.folder.parent)
        tensors = {name: getattr(snapshot, name) for name in FILES}
        size = sum(tensor.nbytes for part in tensors.values() for tensor in part.values())
        with atomic_files.new_folder(folder, bytes_needed=2 * size) as place:
            for name, part in tensors.items():
                _write_tensors(place / f"{name}.safetensors", part)
            content = json.dumps(snapshot.state, indent=2, ensure_ascii=False)
            atomic_files.write(place / "state.json", content.encode())
            write_manifest(place, FORMAT, VERSION, {"step": snapshot.step, **snapshot.facts})
        atomic_files.remove_leftovers(self.folder)
        return folder

    def load_newest(self) -> LoadedCheckpoint | None:
        """Verified; None where there is none at all, a `ModelError` where all are damaged."""
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
        """One checkpoint, every file of it compared with its manifest before a tensor is looked at."""
        folder = self.path(step)
        manifest = check_manifest(folder, FORMAT, VERSION)
        expected = {*(f"{name}.safetensors" for name in FILES), "state.json"}
        if manifest["files"].keys() != expected or manifest["facts"].get("step") != step:
            raise ModelError("checkpoint_manifest_mismatch", path=folder / "manifest.json")
        tensors = {name: read_tensors(folder / f"{name}.safetensors") for name in FILES}
        state = read_json(folder / "state.json")
        return Snapshot(step, **tensors, state=state, facts=manifest["facts"])

    def prune(self, keep_last: int, best_step: int | None) -> None:
        """Remove all but the last ones and the best. Called only when a newer one is durable."""
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
        """Renamed first: half a checkpoint must never look like one."""
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
    """All zero at the start. Only `seconds` differs between two equal runs."""

    position: Position = field(default_factory=Position)  # of the next batch
    tokens: int = 0  # target tokens learned from
    seconds: float = 0.0  # spent on steps
    validated: int = 0  # the last step that was validated
    best: float | None = None
    best_step: int | None = None
    best_by: str | None = None  # the score that decided; another one begins anew
    since_best: int = 0  # validations since then
    skipped: int = 0  # steps without a finite loss and gradient, in all
    skipped_in_a_row: int = 0
    best_loss: float | None = None  # validation loss of the best step; older checkpoints do not have it

    def after_validation(self, step: int, value: float, metric: str, loss: float) -> tuple["TrainState", bool]:
        """With one more validation, and whether it was the best so far. The lower loss decides between equal scores."""
        if self._is_improvement(value, metric, loss):
            now = replace(self, validated=step, since_best=0)
            return replace(now, best=value, best_step=step, best_by=metric, best_loss=loss), True
        return replace(self, validated=step, since_best=self.since_best + 1), False

    def _is_improvement(self, value: float, metric: str, loss: float) -> bool:
        if self.best is None or self.best_by not in (None, metric):
            return True
        if value != self.best:
            return value < self.best if metric in LOWER_IS_BETTER else value > self.best
        # Where the loss of the best step is not known, the later step is taken: usually it has the lower loss.
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
    holding = updater.placement
    return Snapshot(
        step=updater.step,
        model=holding.gather({name: weight.detach() for name, weight in holding.network.named_parameters()}),
        optimizer=holding.gather({**optimizer_tensors(updater.optimizer, holding.network), **_extra_tensors(updater)}),
        random=random_state_tensors(updater.device, updater.world),
        state=state.to_json(),
        facts=facts,
    )


def restore(updater: Updater, snapshot: Snapshot) -> tuple[TrainState, bool]:
    """Where the run stood, and whether its sources of chance go on too. Tensors that do not fit are a `ModelError`."""
    holding = updater.placement
    weights = dict(holding.network.named_parameters())
    _check_tensors("model.safetensors", weights, snapshot.model)
    moments = expected_optimizer_tensors(holding.network) if snapshot.step else {}
    _check_tensors("optimizer.safetensors", {**moments, **_extra_tensors(updater)}, snapshot.optimizer)
    model, optimizer = holding.local_shards(snapshot.model), holding.local_shards(snapshot.optimizer)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(model[name])
    if moments:
        load_optimizer_tensors(updater.optimizer, holding.network, optimizer)
    for name, tensor in _extra_tensors(updater).items():
        tensor.copy_(optimizer[name])
    updater.step = snapshot.step
    exact = restore_random_state(snapshot.random, updater.device, updater.world)
    return TrainState.from_json(snapshot.state), exact


def eval_weights(snapshot: Snapshot) -> dict[str, Tensor]:
    """The weights that a model made of this checkpoint has: the moving average's, where there is one."""
    prefix = "average/"
    average = {name.removeprefix(prefix): t for name, t in snapshot.optimizer.items() if name.startswith(prefix)}
    return average or snapshot.model


def _extra_tensors(updater: Updater) -> dict[str, Tensor]:
    """What the learner keeps beside the optimizer; the tensors themselves."""
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
    """Weight by weight, summed in double precision. One checkpoint after the other is read, not all at once.

    A damaged one is an error, or, where there is a list for such, is left out and told there.
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
