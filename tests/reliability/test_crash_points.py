"""R4: the process is killed before, during and after every disk operation of a save."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from children import Children
from replaced_folders import READERS, WRITERS
from snapshots import equal, snapshot

from attendo import atomic_files
from attendo.errors import AttendoError
from attendo.train.checkpoint import Checkpoints

NEW, KEEP_LAST, BEST = 40, 2, 10


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints. After the fourth is saved, 20 is pruned, because 10 is the best one."""
    folder = tmp_path_factory.mktemp("earlier") / "checkpoints"
    for step in (10, 20, 30):
        Checkpoints(folder).save(snapshot(step))
    return folder


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("how", "call", "every"),
    [
        *(("before", 1, 4), ("half", 2, 4), ("after", 3, 4)),
        *(pytest.param(how, 1, 1, marks=pytest.mark.slow) for how in ("before", "half", "after")),
    ],
)
@pytest.mark.parametrize("occupied", [False, True], ids=["", "in place of a damaged one"])
@pytest.mark.parametrize("in_thread", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "in a thread"])
def test_R4_newest_complete_checkpoint_is_found_after_a_kill(
    children: Children, earlier: Path, tmp_path: Path, how: str, occupied: bool, in_thread: bool, call: int, every: int
) -> None:
    """Kill the process at disk call `call`, then at every `every`-th one, until the save finishes."""
    died = True
    while died:
        folder = tmp_path / f"{call}"
        shutil.copytree(earlier, folder)
        if occupied:
            shutil.copytree(folder / "step-00000030", folder / f"step-{NEW:08d}")
        save = {"folder": str(folder), "step": NEW, "keep_last": KEEP_LAST, "best": BEST, "in_thread": in_thread}
        ended = children.start([("die_at_disk_call", {"call": call, "how": how}), ("save_and_prune", save)]).wait()
        died = ended.code == -9
        assert died or ended.code == 0, ended.errors
        check_recovery(Checkpoints(folder), not died, damaged={NEW} if occupied else set())
        call += every
    assert call > 15


def check_recovery(checkpoints: Checkpoints, finished: bool, damaged: set[int]) -> None:
    """Checkpoints in `damaged` may still be damaged. All others are complete or absent."""
    atomic_files.remove_leftovers(checkpoints.folder)
    assert not list(checkpoints.folder.glob(".*"))
    damaged_now = {step for step in checkpoints.steps() if not checkpoints._is_intact(step)}
    assert damaged_now <= damaged
    found = checkpoints.load_newest()
    assert found is not None
    assert found.snapshot.step in ((NEW,) if finished else (30, NEW))
    assert equal(found.snapshot, snapshot(found.snapshot.step))
    for step in (BEST, 30):  # neither may be removed
        assert equal(checkpoints.load(step), snapshot(step))
    checkpoints.save(snapshot(NEW))
    checkpoints.prune(KEEP_LAST, BEST)
    assert checkpoints.steps() == [BEST, 30, NEW]
    assert equal(checkpoints.load(NEW), snapshot(NEW))


Content = dict[str, bytes]


def read_content(folder: Path) -> Content:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_versions(kind: str, folder: Path) -> list[Content]:
    """Write both versions in order. Return the files of each."""
    contents = []
    for version in (1, 2):
        WRITERS[kind](folder, version)
        contents.append(read_content(folder))
    assert contents[0] != contents[1]
    return contents


def check_replaced(kind: str, folder: Path, versions: list[Content], finished: bool) -> None:
    """The folder is complete, and in its new version if the writer finished. The next write leaves no other files."""
    READERS[kind](folder)
    assert read_content(folder) in (versions[1:] if finished else versions)
    WRITERS[kind](folder, 2)
    assert read_content(folder) == versions[1]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("how", "call", "every"),
    [
        *(("before", 1, 4), ("half", 2, 4), ("after", 3, 4)),
        *(pytest.param(how, 1, 1, marks=pytest.mark.slow) for how in ("before", "half", "after")),
    ],
)
@pytest.mark.parametrize("kind", WRITERS)
def test_R4_folder_is_complete_after_its_writer_is_killed(
    children: Children, tmp_path: Path, kind: str, how: str, call: int, every: int
) -> None:
    versions = write_versions(kind, tmp_path / "finished" / "folder")
    killed = True
    while killed:
        folder = tmp_path / f"{call}" / "folder"
        WRITERS[kind](folder, 1)
        write = {"kind": kind, "folder": str(folder), "version": 2}
        ended = children.start([("die_at_disk_call", {"call": call, "how": how}), ("write_folder", write)]).wait()
        killed = ended.code == -9
        assert killed or ended.code == 0, ended.errors
        check_replaced(kind, folder, versions, finished=not killed)
        call += every
    assert call > 8


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=["disk", "user"])
def test_R4_folder_is_complete_after_a_disk_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, error: BaseException
) -> None:
    versions = write_versions(kind, tmp_path / "finished" / "folder")
    call, failed = 0, True
    while failed:
        call += 1
        folder = tmp_path / f"{call}" / "folder"
        WRITERS[kind](folder, 1)
        with monkeypatch.context() as patch:
            fail_at_disk_call(patch, call, error)
            failed = is_interrupted(lambda folder=folder: WRITERS[kind](folder, 2))
        assert failed or not list(folder.parent.glob(".*"))
        assert read_content(folder) in (versions if failed else versions[1:])
        check_replaced(kind, folder, versions, finished=not failed)
    assert call > 8


def fail_at_disk_call(patch: pytest.MonkeyPatch, call: int, error: BaseException) -> None:
    """Make one disk operation raise an error."""
    calls = 0

    def failing_call(original: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*arguments: object) -> None:
            nonlocal calls
            calls += 1
            if calls == call:
                raise error
            original(*arguments)

        return wrapped

    for name in ("write", "sync", "move", "remove"):
        patch.setattr(atomic_files, name, failing_call(getattr(atomic_files, name)))


def is_interrupted(write: Callable[[], None]) -> bool:
    try:
        write()
    except (OSError, AttendoError, KeyboardInterrupt):
        return True
    return False
