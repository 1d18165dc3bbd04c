"""Writing that survives a crash: in the right order, whole or not at all, and nothing left lying about."""

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

Verb = tuple[str, str]


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> list[Verb]:
    """What is done to the disk, in order."""
    done: list[Verb] = []
    for name in ("write", "sync", "move", "remove"):
        real = getattr(atomic_files, name)

        def noted(path: Path, *rest: object, name: str = name, real: Callable[..., None] = real) -> None:
            done.append((name, path.name))
            real(path, *rest)

        monkeypatch.setattr(atomic_files, name, noted)
    return done


def write_half(place: Path, error: BaseException) -> None:
    (place / "a").write_text("half")
    raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_written_beside_its_place_and_moved_there_when_it_is_durable(
    tmp_path: Path, verbs: list[Verb]
) -> None:
    folder = tmp_path / "deep" / "er" / "new"
    with atomic_files.new_folder(folder) as place:
        (place / "a").write_text("one")
        (place / "b").write_text("two")
        assert not folder.exists()
        assert place.parent == folder.parent
    assert names(folder) == ["a", "b"]
    assert names(folder.parent) == ["new"]
    moved = verbs.index(("move", ".tmp-new"))
    assert set(verbs[:moved]) == {("remove", ".tmp-new"), ("sync", "a"), ("sync", "b"), ("sync", ".tmp-new")}
    assert verbs[moved - 1] == ("sync", ".tmp-new")
    assert verbs[moved + 1 :] == [("sync", "er"), ("remove", ".tmp-new")]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_folder_that_is_not_finished_vanishes(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_files.new_folder(tmp_path / "new") as place:
        write_half(place, error())
    assert names(tmp_path) == []


def test_a_folder_that_is_there_already_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a").write_text("old")
    with pytest.raises(OSError, match="not empty"), atomic_files.new_folder(tmp_path / "old") as place:
        (place / "a").write_text("new")
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old" / "a").read_text() == "old"


def test_what_an_earlier_writer_left_is_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / ".tmp-new").mkdir()
    (tmp_path / ".tmp-new" / "stale").write_text("stale")
    with atomic_files.new_folder(tmp_path / "new") as place:
        (place / "a").write_text("one")
    assert names(tmp_path / "new") == ["a"]


def test_too_little_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.atomic_files.shutil.disk_usage", lambda path: type("Usage", (), {"free": 1234}))
    with (
        pytest.raises(DiskFullError, check=has_code("disk_space_too_small", free=1234, needed=5000, folder=tmp_path)),
        atomic_files.new_folder(tmp_path / "not" / "yet" / "new", bytes_needed=5000),
    ):
        raise AssertionError("never here")
    assert names(tmp_path) == []
    atomic_files.check_free_space(tmp_path / "not" / "yet", 1234)


def test_room_is_that_of_the_real_disk(tmp_path: Path) -> None:
    atomic_files.check_free_space(tmp_path / "not" / "yet", 1)
    with pytest.raises(DiskFullError):
        atomic_files.check_free_space(tmp_path / "not" / "yet", 2**62)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize(
    ("needed", "error"), [(0, has_code("disk_full_size_unknown")), (7000, has_code("disk_full", size=7000))]
)
def test_a_disk_that_fills_up_is_named_with_the_size(
    tmp_path: Path, number: int, needed: int, error: ErrorCheck
) -> None:
    with (
        pytest.raises(DiskFullError, check=error) as told,
        atomic_files.new_folder(tmp_path / "new", needed) as place,
    ):
        write_half(place, OSError(number, os.strerror(number)))
    assert told.value.values["path"] == tmp_path / "new"
    assert isinstance(told.value, AttendoError)
    assert told.value.exit_code == 1
    assert names(tmp_path) == []


def test_another_fault_of_the_disk_is_passed_on_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), atomic_files.explain_disk_full(tmp_path, 10):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_sweeping_removes_what_interrupted_writers_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".tmp-step").mkdir()
    (tmp_path / ".tmp-step" / "a").write_text("half")
    (tmp_path / ".tmp-file").write_text("half")
    (tmp_path / "step").mkdir()
    (tmp_path / ".old-model").mkdir()
    (tmp_path / "tmp-mine").write_text("mine")
    assert atomic_files.remove_leftovers(tmp_path) == [tmp_path / ".tmp-file", tmp_path / ".tmp-step"]
    assert names(tmp_path) == [".old-model", "step", "tmp-mine"]
    assert atomic_files.remove_leftovers(tmp_path) == atomic_files.remove_leftovers(tmp_path / "missing") == []


def test_a_file_is_replaced_whole(tmp_path: Path, verbs: list[Verb]) -> None:
    path = tmp_path / "run.toml"
    for content in (b"first", b"second"):
        atomic_files.replace_file(path, content)
        assert path.read_bytes() == content
    assert names(tmp_path) == ["run.toml"]
    once = [("write", ".tmp-run.toml"), ("sync", ".tmp-run.toml"), ("move", ".tmp-run.toml"), ("sync", tmp_path.name)]
    assert verbs == once * 2


@pytest.mark.parametrize("verb", ["write", "sync", "move"])
def test_a_file_is_as_it_was_wherever_replacing_it_stops(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"first")

    def dies(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_files, verb, dies)
    with pytest.raises(KeyboardInterrupt):
        atomic_files.replace_file(path, b"second")
    assert path.read_bytes() == b"first"


def test_syncing_asks_the_system_for_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("attendo.atomic_files.os.fsync", lambda handle: asked.append(os.fstat(handle).st_ino))
    (tmp_path / "a").write_text("one")
    for path in (tmp_path / "a", tmp_path):
        atomic_files.sync(path)
    assert asked == [(tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino]


def test_a_handle_is_closed_also_when_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    closed: list[int] = []
    close = os.close

    def refuses(handle: int) -> None:
        opened.append(handle)
        raise OSError(errno.EIO, "Input/output error")

    def noted(handle: int) -> None:
        closed.append(handle)
        close(handle)

    monkeypatch.setattr("attendo.atomic_files.os.fsync", refuses)
    monkeypatch.setattr("attendo.atomic_files.os.close", noted)
    with pytest.raises(OSError, match="Input/output"):
        atomic_files.sync(tmp_path)
    assert opened == closed != []


def test_removing_takes_files_folders_and_links_but_never_what_a_link_leads_to(tmp_path: Path) -> None:
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


def test_a_locked_folder_keeps_other_processes_out_until_it_is_let_go(tmp_path: Path) -> None:
    other = (
        "from attendo.atomic_files import folder_lock\nfrom pathlib import Path\nwith "
        "folder_lock(Path('.')): print('inside')"
    )
    command = [sys.executable, "-c", other]
    with atomic_files.folder_lock(tmp_path):
        refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert fragment("folder_in_use") in refused.stderr
    assert names(tmp_path) == []
    let_in = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert let_in.stdout == "inside\n"


def test_a_lock_is_let_go_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong"), atomic_files.folder_lock(tmp_path):
        raise ValueError("wrong")
    assert names(tmp_path) == []


def test_a_place_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    goal = tmp_path / "new" / "goal"
    other = (
        "from attendo.atomic_files import exclusive_target\nfrom pathlib import Path\nwith "
        "exclusive_target(Path('goal')): print('inside')"
    )
    command = [sys.executable, "-c", other]
    with atomic_files.exclusive_target(goal):
        refused = subprocess.run(command, capture_output=True, text=True, cwd=goal.parent, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert fragment("path_being_written", path="goal") in refused.stderr
        with pytest.raises(UsageError, check=has_code("path_being_written")), atomic_files.exclusive_target(goal):
            raise AssertionError("never here")
        with atomic_files.exclusive_target(goal.with_name("neighbour")):
            goal.mkdir()
    assert names(goal.parent) == ["goal"]


def test_a_lock_that_was_given_up_while_it_was_waited_for_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, real = tmp_path / ".tmp-goal.lock", fcntl.flock
    rounds: list[int] = []

    def too_late(handle: int, how: int) -> None:
        rounds.append(handle)
        if len(rounds) == 1:
            lock.unlink()
        real(handle, how)

    monkeypatch.setattr("attendo.atomic_files.fcntl.flock", too_late)
    with atomic_files.exclusive_target(tmp_path / "goal"):
        assert lock.exists()
    assert len(rounds) == 2
    assert names(tmp_path) == []


def test_a_place_inside_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(UsageError, check=has_code("parent_is_a_file")),
        atomic_files.exclusive_target(tmp_path / "file" / "deep" / "goal"),
    ):
        raise AssertionError("never here")
    assert names(tmp_path) == ["file"]


def test_folders_for_a_place_stay_if_something_is_in_them(tmp_path: Path) -> None:
    with atomic_files.exclusive_target(tmp_path / "a" / "b" / "goal"):
        (tmp_path / "a" / "mine").write_text("x")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "mine"]
