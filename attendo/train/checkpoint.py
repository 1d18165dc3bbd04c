"""What must survive a crash, written so that it does.

    checkpoints/step-00001000/  model.safetensors  optimizer.safetensors  random.safetensors  state.json  manifest.json

A checkpoint is whole or not there. The newest one is found by looking, never by a pointer that could lie: its manifest
and the checksum of every file are verified, and a damaged one gives way to the one before it.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from attendo import durable
from attendo.errors import ModelError
from attendo.model_files import read_json
from attendo.store import check_manifest, read_tensors, write_manifest

FORMAT = "attendo.checkpoint"
VERSION = 1
FILES = ("model", "optimizer", "random")
_NAME = re.compile(r"step-(\d{8,})")


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
class Found:
    """The newest checkpoint that is whole, and why newer ones were passed over."""

    snapshot: Snapshot
    folder: Path
    passed_over: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Of all checkpoints that are there, whole or not; oldest first."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, snapshot: Snapshot) -> Path:
        """Write it durably; nothing is removed. A `DiskFullError` leaves what was there untouched."""
        folder = self.path(snapshot.step)
        if folder.exists():
            if self._is_whole(snapshot.step):  # a step is the same whoever saves it: never replace what is durable
                return folder
            self._discard(snapshot.step)
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            durable.sync(self.folder.parent)
        tensors = {name: getattr(snapshot, name) for name in FILES}
        size = sum(tensor.nbytes for part in tensors.values() for tensor in part.values())
        with durable.new_folder(folder, needed=2 * size) as place:
            for name, part in tensors.items():
                _write_tensors(place / f"{name}.safetensors", part)
            content = json.dumps(snapshot.state, indent=2, ensure_ascii=False)
            durable.write(place / "state.json", content.encode())
            write_manifest(place, FORMAT, VERSION, {"step": snapshot.step, **snapshot.facts})
        durable.sweep(self.folder)
        return folder

    def newest(self) -> Found | None:
        """Verified; None where there is none at all, a `ModelError` where all are damaged."""
        reasons: list[str] = []
        for step in reversed(self.steps()):
            try:
                return Found(self.load(step), self.path(step), tuple(reasons))
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

    def prune(self, keep_last: int, best: int | None) -> None:
        """Remove all but the last ones and the best. Called only when a newer one is durable."""
        for step in self.steps()[:-keep_last]:
            if step != best:
                self._discard(step)

    def _is_whole(self, step: int) -> bool:
        try:
            self.load(step)
        except ModelError:
            return False
        return True

    def _discard(self, step: int) -> None:
        """Renamed first: half a checkpoint must never look like one."""
        doomed = self.folder / f"{durable.TEMPORARY}old-{self.path(step).name}"
        durable.remove(doomed)
        durable.move(self.path(step), doomed)
        durable.remove(doomed)


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with durable.explained(path, sum(tensor.nbytes for tensor in content.values())):
        try:
            save_file(content, path)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from None
