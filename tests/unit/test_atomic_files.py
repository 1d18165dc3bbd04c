"""Atomic writes: in the right order, complete or not at all, and without leftovers."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from error_codes import ErrorCheck, fragment, has_code

from attendo import atomic_files
from attendo.atomic_files import DiskFullError
from attendo.errors import AttendoError, UsageError

Operation = tuple[str, str]


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    """The disk operations, in order."""
    recorded: list[Operation] = []
    for name in ("write", "sync", "move", "remove"):
        real = getattr(atomic_files, name)

        def record(path: Path, *rest: object, name: str = name, real: Callable[..., None] = real) -> None:
            recorded.append((name, path.name))
            real(path, *rest)

        monkeypatch.setattr(atomic_files, name, record)
    return recorded


def write_half(temporary: Path, error: BaseException) -> None:
    (temporary / "a").write_text("half")
    raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_written_next_to_its_target_synced_and_moved(tmp_path: Path, operations: list[Operation]) -> None:
    folder = tmp_path / "deep" / "er" / "new"
    with atomic_files.new_folder(folder) as temporary:
        (temporary / "a").write_text("one")
        (temporary / "b").write_text("two")
        assert not folder.exists()
        assert temporary.parent == folder.parent
    assert names(folder) == ["a", "b"]
    assert names(folder.parent) == ["new"]
    moved = operations.index(("move", ".tmp-new"))
    assert set(operations[:moved]) == {("remove", ".tmp-new"), ("sync", "a"), ("sync", "b"), ("sync", ".tmp-new")}
    assert operations[moved - 1] == ("sync", ".tmp-new")
    assert operations[moved + 1 :] == [("sync", "er"), ("remove", ".tmp-new")]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_unfinished_folder_is_removed(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_files.new_folder(tmp_path / "new") as temporary:
        write_half(temporary, error())
    assert names(tmp_path) == []


def test_an_existing_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a").write_text("old")
    with pytest.raises(OSError, match="not empty"), atomic_files.new_folder(tmp_path / "old") as temporary:
        (temporary / "a").write_text("new")
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old" / "a").read_text() == "old"


def test_leftovers_of_an_earlier_writer_are_not_included(tmp_path: Path) -> None:
    (tmp_path / ".tmp-new").mkdir()
    (tmp_path / ".tmp-new" / "stale").write_text("stale")
    with atomic_files.new_folder(tmp_path / "new") as temporary:
        (temporary / "a").write_text("one")
    assert names(tmp_path / "new") == ["a"]


def test_too_little_disk_space_raises_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.atomic_files.shutil.disk_usage", lambda path: type("Usage", (), {"free": 1234}))
    with (
        pytest.raises(DiskFullError, check=has_code("disk_space_too_small", free=1234, needed=5000, folder=tmp_path)),
        atomic_files.new_folder(tmp_path / "not" / "yet" / "new", bytes_needed=5000),
    ):
        raise AssertionError("never here")
    assert names(tmp_path) == []
    atomic_files.check_free_space(tmp_path / "not" / "yet", 1234)


def test_free_space_is_read_from_the_disk(tmp_path: Path) -> None:
    atomic_files.check_free_space(tmp_path / "not" / "yet", 1)
    with pytest.raises(DiskFullError):
        atomic_files.check_free_space(tmp_path / "not" / "yet", 2**62)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize(
    ("needed", "error"), [(0, has_code("disk_full_size_unknown")), (7000, has_code("disk_full", size=7000))]
)
def test_a_full_disk_raises_an_error_with_path_and_size(
    tmp_path: Path, number: int, needed: int, error: ErrorCheck
) -> None:
    with (
        pytest.raises(DiskFullError, check=error) as caught,
        atomic_files.new_folder(tmp_path / "new", needed) as temporary,
    ):
        write_half(temporary, OSError(number, os.strerror(number)))
    assert caught.value.values["path"] == tmp_path / "new"
    assert isinstance(caught.value, AttendoError)
    assert caught.value.exit_code == 1
    assert names(tmp_path) == []


def test_other_disk_errors_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), atomic_files.explain_disk_full(tmp_path, 10):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_remove_leftovers_removes_only_temporary_files(tmp_path: Path) -> None:
    (tmp_path / ".tmp-step").mkdir()
    (tmp_path / ".tmp-step" / "a").write_text("half")
    (tmp_path / ".tmp-file").write_text("half")
    (tmp_path / "step").mkdir()
    (tmp_path / ".old-model").mkdir()
    (tmp_path / "tmp-mine").write_text("mine")
    assert atomic_files.remove_leftovers(tmp_path) == [tmp_path / ".tmp-file", tmp_path / ".tmp-step"]
    assert names(tmp_path) == [".old-model", "step", "tmp-mine"]
    assert atomic_files.remove_leftovers(tmp_path) == atomic_files.remove_leftovers(tmp_path / "missing") == []


def test_a_file_is_replaced_atomically(tmp_path: Path, operations: list[Operation]) -> None:
    path = tmp_path / "run.toml"
    for content in (b"first", b"second"):
        atomic_files.replace_file(path, content)
        assert path.read_bytes() == content
    assert names(tmp_path) == ["run.toml"]
    once = [("write", ".tmp-run.toml"), ("sync", ".tmp-run.toml"), ("move", ".tmp-run.toml"), ("sync", tmp_path.name)]
    assert operations == once * 2


@pytest.mark.parametrize("verb", ["write", "sync", "move"])
def test_an_interrupted_replacement_keeps_the_old_file(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"first")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_files, verb, interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_files.replace_file(path, b"second")
    assert path.read_bytes() == b"first"


def test_sync_calls_fsync_for_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("attendo.atomic_files.os.fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    (tmp_path / "a").write_text("one")
    for path in (tmp_path / "a", tmp_path):
        atomic_files.sync(path)
    assert synced == [(tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino]


def test_a_handle_is_closed_after_a_failed_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    closed: list[int] = []
    close = os.close

    def fail(handle: int) -> None:
        opened.append(handle)
        raise OSError(errno.EIO, "Input/output error")

    def record_close(handle: int) -> None:
        closed.append(handle)
        close(handle)

    monkeypatch.setattr("attendo.atomic_files.os.fsync", fail)
    monkeypatch.setattr("attendo.atomic_files.os.close", record_close)
    with pytest.raises(OSError, match="Input/output"):
        atomic_files.sync(tmp_path)
    assert opened == closed != []


def test_remove_deletes_files_folders_and_links_but_not_link_targets(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    kept.mkdir()
    (kept / "a").write_text("one")
    folder.mkdir()
    (folder / "b").write_text("two")
    (tmp_path / "file").write_text("three")
    (tmp_path / "link").symlink_to(kept, target_is_directory=True)
    for name in ("folder", "file", "link", "missing"):
        atomic_files.remove(tmp_path / name)
    assert names(tmp_path) == ["kept"]
    assert names(kept) == ["a"]


def test_a_folder_lock_excludes_other_processes(tmp_path: Path) -> None:
    other = (
        "from attendo.atomic_files import folder_lock\nfrom pathlib import Path\nwith "
        "folder_lock(Path('.')): print('inside')"
    )
    command = [sys.executable, "-c", other]
    with atomic_files.folder_lock(tmp_path):
        rejected = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (rejected.returncode, rejected.stdout) == (1, "")
        assert fragment("folder_in_use") in rejected.stderr
    assert names(tmp_path) == []
    allowed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert allowed.stdout == "inside\n"


def test_a_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong"), atomic_files.folder_lock(tmp_path):
        raise ValueError("wrong")
    assert names(tmp_path) == []


def test_exclusive_target_allows_one_writer_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "new" / "goal"
    other = (
        "from attendo.atomic_files import exclusive_target\nfrom pathlib import Path\nwith "
        "exclusive_target(Path('goal')): print('inside')"
    )
    command = [sys.executable, "-c", other]
    with atomic_files.exclusive_target(target):
        rejected = subprocess.run(command, capture_output=True, text=True, cwd=target.parent, check=False)
        assert (rejected.returncode, rejected.stdout) == (1, "")
        assert fragment("path_being_written", path="goal") in rejected.stderr
        with pytest.raises(UsageError, check=has_code("path_being_written")), atomic_files.exclusive_target(target):
            raise AssertionError("never here")
        with atomic_files.exclusive_target(target.with_name("neighbour")):
            target.mkdir()
    assert names(target.parent) == ["goal"]


def test_a_lock_file_removed_while_waiting_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, real = tmp_path / ".tmp-goal.lock", fcntl.flock
    attempts: list[int] = []

    def flock_after_unlink(handle: int, flags: int) -> None:
        attempts.append(handle)
        if len(attempts) == 1:
            lock.unlink()
        real(handle, flags)

    monkeypatch.setattr("attendo.atomic_files.fcntl.flock", flock_after_unlink)
    with atomic_files.exclusive_target(tmp_path / "goal"):
        assert lock.exists()
    assert len(attempts) == 2
    assert names(tmp_path) == []


def test_a_target_inside_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(
            UsageError, check=has_code("parent_is_a_file", path=tmp_path / "file/deep/goal", file=tmp_path / "file")
        ),
        atomic_files.exclusive_target(tmp_path / "file" / "deep" / "goal"),
    ):
        raise AssertionError("never here")
    assert names(tmp_path) == ["file"]


def test_parent_folders_with_content_are_kept(tmp_path: Path) -> None:
    with atomic_files.exclusive_target(tmp_path / "a" / "b" / "goal"):
        (tmp_path / "a" / "mine").write_text("x")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "mine"]
