"""Checkpoints on disk: atomic saves, finding the newest one, pruning after a durable save."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code

from attendo import atomic_files
from attendo.errors import ModelError
from attendo.train import checkpoint
from attendo.train.checkpoint import Checkpoints, Snapshot


def snapshot(step: int, value: float = 0.0) -> Snapshot:
    tensors = {name: {"x": torch.full((3,), value + step)} for name in ("model", "optimizer", "random")}
    return Snapshot(step, **tensors, state={"text": "é", "number": 0.1 + step}, facts={"torch": "2"})


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run" / "checkpoints")


def test_a_saved_checkpoint_can_be_loaded(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(snapshot(7))
    assert folder == checkpoints.folder / "step-00000007"
    loaded = checkpoints.load(7)
    assert (loaded.step, loaded.state) == (7, {"text": "é", "number": 7.1})
    assert loaded.facts == {"step": 7, "torch": "2"}
    for part in ("model", "optimizer", "random"):
        assert torch.equal(getattr(loaded, part)["x"], torch.full((3,), 7.0))


def test_an_empty_folder_has_no_checkpoints(checkpoints: Checkpoints) -> None:
    assert checkpoints.steps() == []
    assert checkpoints.load_newest() is None


def test_the_newest_checkpoint_has_the_highest_step(checkpoints: Checkpoints) -> None:
    for step in (9, 100_000_000, 10):
        checkpoints.save(snapshot(step))
    for name in ("step-7", "step-00000011.bak", ".tmp-step-00000012", "notes"):
        (checkpoints.folder / name).mkdir()
    assert checkpoints.steps() == [9, 10, 100_000_000]
    found = checkpoints.load_newest()
    assert found is not None
    assert (found.snapshot.step, found.folder.name, found.skipped_reasons) == (100_000_000, "step-100000000", ())


def test_non_contiguous_tensors_are_saved(checkpoints: Checkpoints) -> None:
    table = torch.arange(6.0).view(2, 3)
    checkpoints.save(Snapshot(1, {"turned": table.T}, {"a": torch.zeros(())}, {"b": torch.ones(2)}, {}))
    assert torch.equal(checkpoints.load(1).model["turned"], table.T)


def test_only_a_damaged_checkpoint_is_replaced(checkpoints: Checkpoints) -> None:
    checkpoints.save(snapshot(5, value=1.0))
    checkpoints.save(snapshot(5, value=2.0))
    assert checkpoints.load(5).model["x"][0] == 6.0
    (checkpoints.path(5) / "model.safetensors").unlink()
    checkpoints.save(snapshot(5, value=2.0))
    assert checkpoints.load(5).model["x"][0] == 7.0


@pytest.mark.parametrize(
    ("keep_last", "best", "kept"),
    [(1, None, [50]), (2, None, [40, 50]), (1, 20, [20, 50]), (2, 50, [40, 50]), (9, 10, [10, 20, 30, 40, 50])],
)
def test_prune_keeps_the_last_and_the_best(
    checkpoints: Checkpoints, keep_last: int, best: int | None, kept: list[int]
) -> None:
    for step in (10, 20, 30, 40, 50):
        checkpoints.save(snapshot(step))
    checkpoints.prune(keep_last, best)
    assert checkpoints.steps() == kept
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [f"step-{step:08d}" for step in kept]


def test_save_removes_temporary_folders(checkpoints: Checkpoints) -> None:
    for name in (".tmp-step-00000003", ".tmp-old-step-00000002"):
        (checkpoints.folder / name).mkdir(parents=True)
        (checkpoints.folder / name / "model.safetensors").write_bytes(b"x")
    checkpoints.save(snapshot(3))
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-00000003"]


def test_files_are_synced_before_the_rename_and_pruning(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the order of calls, which matters after a power loss but not after a kill."""
    for step in (1, 2):
        checkpoints.save(snapshot(step))
    calls: list[tuple[str, str]] = []

    def record(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            path = arguments[1] if name == "save_file" else arguments[0]
            calls.append((name, path.name))
            return original(*arguments)

        return call

    for name in ("write", "sync", "move", "remove"):
        monkeypatch.setattr(atomic_files, name, record(name, getattr(atomic_files, name)))
    monkeypatch.setattr(checkpoint, "save_file", record("save_file", checkpoint.save_file))
    monkeypatch.setattr(checkpoint, "write_manifest", record("write_manifest", checkpoint.write_manifest))
    checkpoints.save(snapshot(3))
    checkpoints.prune(1, None)
    temporary = ".tmp-step-00000003"
    moved = calls.index(("move", temporary))
    files = {"model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json", "manifest.json"}
    assert {name for call, name in calls[:moved] if call == "sync"} == {*files, temporary}
    last_write = max(n for n, (call, _) in enumerate(calls) if call in ("write", "save_file", "write_manifest"))
    first_sync = min(n for n, (call, _) in enumerate(calls) if call == "sync")
    assert last_write < first_sync
    assert calls[moved + 1] == ("sync", "checkpoints")
    assert ("move", "step-00000001") in calls[moved + 2 :]


def test_the_checkpoints_folder_is_synced_too(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = atomic_files.sync
    monkeypatch.setattr(atomic_files, "sync", lambda path: (synced.append(path), sync(path)))
    checkpoints.save(snapshot(1))
    assert checkpoints.folder.parent in synced


@pytest.mark.parametrize("message", ["No space left on device (os error 28)", "File too large (os error 27)"])
def test_a_full_disk_raises_disk_full_error(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    checkpoints.save(snapshot(1))

    def fail(*arguments: Any) -> None:
        raise checkpoint.SafetensorError(f"I/O error: {message}")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    error = has_code("disk_full", path=checkpoints.folder / ".tmp-step-00000002/model.safetensors", size=12)
    with pytest.raises(atomic_files.DiskFullError, check=error):
        checkpoints.save(snapshot(2))
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-00000001"]


def test_another_format_version_is_rejected(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(snapshot(1))
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    with pytest.raises(
        ModelError,
        check=has_code(
            "manifest_version_mismatch", kind="attendo.checkpoint", version=2, found="attendo.checkpoint version 1"
        ),
    ):
        checkpoints.load(1)
