"""R3: runs killed at random times and inside their saves; each goes on, loses nothing it had acknowledged, and ends
as the run that nobody disturbed.
"""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from children import Child, Children, Job
from small_run import (
    acknowledged,
    begin,
    left_behind,
    outcome,
    resume,
    run_config,
    train_to_the_end,
    write_run_file,
)

from attendo.train.checkpoint import Checkpoints

DISK_CALLS = 60  # of about four saves
LONGEST = 2.0  # seconds until a kill, on a machine that has much else to do


class Storm:
    """One run after the other, each killed and resumed until it is done."""

    def __init__(self, children: Children, run_file: Path, folder: Path) -> None:
        self.children, self.run_file, self.folder = children, run_file, folder
        begin = time.perf_counter()
        assert children.attendo("train", run_file, "--out", folder / "undisturbed").code == 0
        self.seconds = min(time.perf_counter() - begin, LONGEST)  # that a whole run takes
        self.expected = outcome(folder / "undisturbed")
        self.kills = self.kills_in_saves = self.finished = 0

    @property
    def run(self) -> Path:
        return self.folder / f"run-{self.finished}"

    def survive(self, seconds: float | None = None, disk_call: int | None = None, how: str = "") -> None:
        """Go on, until the kill or the end; then look at what is left."""
        child = self._go_on([("die_at_disk_call", {"call": disk_call, "how": how})] if disk_call else [])
        if seconds is not None:
            time.sleep(seconds)
            child.kill()
        ended = child.wait()
        if ended.code == 0:
            self._finish()
            return
        assert ended.code == -9, ended.errors
        self.kills += 1
        self.kills_in_saves += disk_call is not None
        found = Checkpoints(self.run / "checkpoints").load_newest()
        assert (found.snapshot.step if found else 0) >= acknowledged(self.run)
        assert found is None or found.skipped_reasons == ()

    def calm_down(self) -> None:
        """The last run to its end; the first step after a restart finds nothing left over."""
        ended = self._go_on([], "--stop-at", "1").wait()
        assert ended.code == 0, ended.errors
        assert left_behind(self.run) == []
        ended = self._go_on([]).wait()
        assert ended.code == 0, ended.errors
        self._finish()

    def _go_on(self, faults: Sequence[Job], *more: str) -> Child:
        begun = (self.run / "run.toml").exists()
        if not begun:
            shutil.rmtree(self.run, ignore_errors=True)
        start = ("--resume", self.run) if begun else (self.run_file, "--out", self.run)
        return self.children.start_attendo("train", *start, *more, before=faults)

    def _finish(self) -> None:
        assert outcome(self.run) == self.expected
        assert left_behind(self.run) == []
        shutil.rmtree(self.run)
        self.finished += 1


def test_R3_a_model_that_another_has_replaced_does_not_outlive_a_restart(prepared: Path, tmp_path: Path) -> None:
    run = train_to_the_end(begin(run_config({"prepared": prepared}, {"steps": 2}), tmp_path / "run"))
    model, old = run.folder / "model", run.folder / ".old-model"
    shutil.copytree(model, old)  # as a kill leaves them that comes after the new one was put in place
    resume(run.folder)
    assert left_behind(run.folder) == []
    model.rename(old)  # and before
    resume(run.folder)
    assert old.is_dir(), "the only one there is"


@pytest.fixture
def storm(children: Children, prepared: Path, tmp_path: Path) -> Storm:
    config = run_config({"prepared": prepared}, {"save_every": 2, "validate_every": 6}, model={"dropout": 0.2})
    return Storm(children, write_run_file(tmp_path / "run.toml", config), tmp_path / "storm")


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_R3_killed_again_and_again_a_run_ends_as_if_nothing_had_happened(storm: Storm, kills: int) -> None:
    chance = random.Random(kills)
    while storm.kills < kills:
        if storm.kills_in_saves < kills // 2:
            storm.survive(disk_call=chance.randint(1, DISK_CALLS), how=chance.choice(["before", "half", "after"]))
        else:
            storm.survive(seconds=chance.uniform(0, storm.seconds))
    storm.calm_down()
    assert (storm.kills, storm.kills_in_saves) == (kills, kills // 2)
