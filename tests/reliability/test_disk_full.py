"""R5: on a full disk, saved checkpoints stay intact, training continues and saves again when there is space."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from children import Children
from error_codes import fragment, has_code, message
from full_disk import room_for
from small_run import (
    STEPS,
    begin,
    leftover_files,
    outcome,
    reports,
    resume,
    run_config,
    train_to_the_end,
    write_run_file,
)

from attendo.atomic_files import DiskFullError
from attendo.runs.run import Run
from attendo.train import checkpoint
from attendo.train.loop import Report, Saved, SaveError, SaveFailed, Step, Validation

NOT_PERMITTED = 77
SAVES = [3, 6, 9, 12, 15, 18, 21, 24]  # 9 and 18 are validated too


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> Run:
    return begin(run_config({"prepared": prepared}, {"save_every": 3}, model={"dropout": 0.2}), tmp_path / "run")


@pytest.fixture(scope="module")
def expected(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = run_config({"prepared": prepared}, {"save_every": 3}, model={"dropout": 0.2})
    return outcome(train_to_the_end(begin(config, tmp_path_factory.mktemp("undisturbed") / "run")).folder)


@contextmanager
def full_while_writing_tensors(size: int) -> Iterator[None]:
    def fail(tensors: Any, path: Path) -> None:
        path.write_bytes(bytes(100))
        raise checkpoint.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save_file", fail)
        yield


@contextmanager
def full_before_writing(size: int) -> Iterator[None]:
    """Less free space than is checked for before writing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attendo.atomic_files.shutil.disk_usage", lambda path: type("Usage", (), {"free": size}))
        yield


@contextmanager
def full_at_fsync(size: int) -> Iterator[None]:
    """Some file systems report a full disk only at fsync."""

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attendo.atomic_files.os.fsync", fail)
        yield


@contextmanager
def broken_disk(size: int) -> Iterator[None]:
    def fail(tensors: Any, path: Path) -> None:
        raise checkpoint.SafetensorError("Error while serializing: I/O error: Input/output error (os error 5)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save_file", fail)
        yield


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "fault", [room_for, full_while_writing_tensors, full_before_writing, full_at_fsync, broken_disk]
)
def test_R5_training_continues_and_saves_when_there_is_space(
    run: Run, expected: Any, fault: Callable[[int], Any]
) -> None:
    received = train_with(run, fault, first=4, last=13)
    failed = {report.step: report for report in received if isinstance(report, SaveFailed)}
    assert list(failed) == [6, 9, 12]
    assert [report.failures for report in failed.values()][-1] >= 3
    assert sorted({report.step for report in received if isinstance(report, Saved)} | failed.keys()) == SAVES
    for report in failed.values():
        assert str(run.folder) in report.reason
        assert "\n" not in report.reason
        assert fault is broken_disk or re.search(r"[1-9][\d,]+ (bytes|are needed)", report.reason)
    run.finish()
    assert outcome(run.folder) == expected


@pytest.mark.short(1)
@pytest.mark.parametrize("fault", [room_for, full_while_writing_tensors, full_before_writing])
def test_R5_earlier_checkpoints_are_intact_and_can_be_resumed(
    run: Run, expected: Any, fault: Callable[[int], Any]
) -> None:
    for report in run.train():
        if isinstance(report, Saved):
            break
    with fault(5_000):
        run.trainer.updater.step += 1
        assert isinstance(run.save(), SaveFailed)
    assert sorted(path.name for path in run.checkpoints.folder.iterdir()) == ["step-00000003"]
    train_to_the_end(resume(run.folder))
    assert outcome(run.folder) == expected


@pytest.mark.parametrize("limit", [100, 5_000])  # bytes: enough for no file, and for all files except the weights
def test_R5_model_is_written_by_the_next_resume(prepared: Path, tmp_path: Path, limit: int) -> None:
    run = begin(run_config({"prepared": prepared}, {"steps": 2, "save_every": 1}), tmp_path / "run")
    received = list(run.train())
    assert isinstance(received[-1], Saved)
    with room_for(limit), pytest.raises(DiskFullError, match=r"[1-9][\d,]+ bytes") as caught:
        run.finish()
    assert str(caught.value).startswith(fragment("disk_full", path=run.folder / "model"))
    assert str(caught.value).endswith(message("disk_full_checkpoint_kept", error="", step=2, folder=run.folder))
    assert leftover_files(run.folder) == []
    train_to_the_end(resume(run.folder))
    assert (run.folder / "model" / "manifest.json").is_file()


def test_R5_unsaved_best_model_is_a_warning_with_path_and_bytes(prepared: Path, tmp_path: Path) -> None:
    run = begin(run_config({"prepared": prepared}, {"steps": 2, "validate_every": 1}), tmp_path / "run")
    with room_for(5_000):
        next(report for report in run.train() if isinstance(report, Validation))
    assert run.faults["model"].startswith(fragment("disk_full", path=run.folder / "model"))
    assert re.search(r"[1-9][\d,]+ bytes", run.faults["model"])
    assert leftover_files(run.folder) == []


def test_R5_disk_full_at_the_start_raises_with_path_and_bytes(prepared: Path, tmp_path: Path) -> None:
    config, folder = run_config({"prepared": prepared}), tmp_path / "run"
    with room_for(50), pytest.raises(DiskFullError) as caught:
        begin(config, folder)
    assert caught.value.exit_code == 1
    assert has_code("disk_full", path=folder)(caught.value)
    assert re.search(r"\d bytes", str(caught.value))
    assert begin(config, folder).trainer.step == 0, "with enough space the run can be started again"


def test_R5_max_save_failures_end_the_run(prepared: Path, tmp_path: Path) -> None:
    run = begin(run_config({"prepared": prepared}, {"save_every": 3, "max_save_failures": 2}), tmp_path / "run")
    with pytest.raises(SaveError, check=has_code("checkpoint_saves_failed", count=2)):
        train_with(run, room_for, first=4, last=STEPS)
    assert run.checkpoints.steps() == [3]


def test_R5_command_line_ends_with_code_1_and_one_line(children: Children, prepared: Path, tmp_path: Path) -> None:
    config = run_config({"prepared": prepared}, {"save_every": 3, "max_save_failures": 3})
    run_file, run = write_run_file(tmp_path / "run.toml", config), tmp_path / "run"
    failed = children.attendo("train", run_file, "--out", run, before=[("limit_file_size", {"limit": 6_000})])
    assert failed.code == 1
    assert failed.error.startswith(fragment("checkpoint_saves_failed", count=3))
    assert f"{run / 'checkpoints'}" in failed.error
    assert " bytes" in failed.error
    assert children.attendo("train", "--resume", run).code == 0


def test_R5_real_full_disk_recovers(children: Children, prepared: Path, tmp_path: Path, expected: Any) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    config = run_config({"prepared": prepared}, {"save_every": 3}, model={"dropout": 0.2})
    run_file = write_run_file(tmp_path / "run.toml", config)
    ended = children.start(
        [
            ("mount_small_disk", {"folder": str(disk), "size": 4_000_000}),
            ("fill_disk", {"folder": str(disk), "first": 4, "last": 13}),
            ("attendo_to_the_end", {"arguments": ["train", str(run_file), "--out", str(disk / "run")]}),
            ("copy_folder", {"source": str(disk / "run"), "target": str(copy)}),
        ]
    ).wait()
    if ended.code == NOT_PERMITTED:
        pytest.skip("mounting a disk is not permitted")
    assert ended.code == 0, ended.errors
    assert f"step 12: the checkpoint could not be saved, 3 times in a row: {disk}" in ended.errors
    assert fragment("disk_space_too_small") in ended.errors
    assert f"model written to {disk / 'run' / 'model'}\n" in ended.errors
    assert outcome(copy) == expected
    assert [line["step"] for line in reports(copy) if line["kind"] == "saved"] == [3, 15, 18, 21, 24]


def train_with(run: Run, fault: Callable[[int], Any], first: int, last: int) -> list[Report]:
    """All reports of a run whose disk is full from step `first` to step `last`."""
    received: list[Report] = []
    with ExitStack() as disk:
        for report in run.train():
            received.append(report)
            if isinstance(report, Step) and report.step == first:
                disk.enter_context(fault(5_000))
            if isinstance(report, Step) and report.step == last:
                disk.close()
    return received
