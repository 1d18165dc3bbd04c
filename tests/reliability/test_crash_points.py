"""R4: the process dies before, in the middle of and after every single change that saving makes to the disk."""

import shutil
from pathlib import Path

import pytest
from children import Children
from snapshots import equal, snapshot

from attendo import atomic_files
from attendo.train.checkpoint import Checkpoints

NEW, KEEP_LAST, BEST = 40, 2, 10


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints. When the fourth is safe, 20 is to go: 10 is the best one."""
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
def test_R4_wherever_the_process_dies_the_newest_whole_checkpoint_is_found(
    children: Children, earlier: Path, tmp_path: Path, how: str, occupied: bool, call: int, every: int
) -> None:
    """At its first call, or a later one, and at every so many from there on, until it lives to its end."""
    died = True
    while died:
        folder = tmp_path / f"{call}"
        shutil.copytree(earlier, folder)
        if occupied:
            shutil.copytree(folder / "step-00000030", folder / f"step-{NEW:08d}")
        save = {"folder": str(folder), "step": NEW, "keep_last": KEEP_LAST, "best": BEST}
        ended = children.start([("die_at_disk_call", {"call": call, "how": how}), ("save_and_prune", save)]).wait()
        died = ended.code == -9
        assert died or ended.code == 0, ended.errors
        check_that_it_goes_on(Checkpoints(folder), not died, damaged={NEW} if occupied else set())
        call += every
    assert call > 15


def check_that_it_goes_on(checkpoints: Checkpoints, finished: bool, damaged: set[int]) -> None:
    """`damaged` may still be what they were before; everything else is whole or not there."""
    atomic_files.remove_leftovers(checkpoints.folder)
    assert not list(checkpoints.folder.glob(".*"))
    halves = {step for step in checkpoints.steps() if not checkpoints._is_intact(step)}
    assert halves <= damaged
    found = checkpoints.load_newest()
    assert found is not None
    assert found.snapshot.step in ((NEW,) if finished else (30, NEW))
    assert equal(found.snapshot, snapshot(found.snapshot.step))
    for step in (BEST, 30):  # neither was ever to be removed
        assert equal(checkpoints.load(step), snapshot(step))
    checkpoints.save(snapshot(NEW))
    checkpoints.prune(KEEP_LAST, BEST)
    assert checkpoints.steps() == [BEST, 30, NEW]
    assert equal(checkpoints.load(NEW), snapshot(NEW))
