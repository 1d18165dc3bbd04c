"""R3: a run killed at random times and during saves loses no acknowledged step and equals the undisturbed run."""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from children import Child, Children, Job
from small_run import (
    begin,
    last_acknowledged_step,
    leftover_files,
    outcome,
    resume,
    run_config,
    train_to_the_end,
    write_run_file,
)

from attendo.train.checkpoint import Checkpoints

DISK_CALLS = 60  # in about 4 saves
MAX_SECONDS = 2.0  # seconds until a kill, also on a busy machine


class KillTest:
    """Runs that are killed and resumed until they finish."""

    def __init__(self, children: Children, run_file: Path, folder: Path) -> None:
        self.children, self.run_file, self.folder = children, run_file, folder
        begin = time.perf_counter()
        assert children.attendo("train", run_file, "--out", folder / "undisturbed").code == 0
        self.seconds = min(time.perf_counter() - begin, MAX_SECONDS)  # duration of a complete run
        self.expected = outcome(folder / "undisturbed")
        self.kills = self.kills_in_saves = self.finished = 0

    @property
    def run(self) -> Path:
        return self.folder / f"run-{self.finished}"

    def resume_and_kill(self, seconds: float | None = None, disk_call: int | None = None, how: str = "") -> None:
        """Resume the run until it is killed or finished, then check its checkpoints."""
        child = self._resume([("die_at_disk_call", {"call": disk_call, "how": how})] if disk_call else [])
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
        assert (found.snapshot.step if found else 0) >= last_acknowledged_step(self.run)
        assert found is None or found.skipped_reasons == ()

    def finish_last_run(self) -> None:
        """Finish the last run. After its first step, no temporary files are left."""
        ended = self._resume([], "--stop-at", "1").wait()
        assert ended.code == 0, ended.errors
        assert leftover_files(self.run) == []
        ended = self._resume([]).wait()
        assert ended.code == 0, ended.errors
        self._finish()

    def _resume(self, faults: Sequence[Job], *more: str) -> Child:
        has_started = (self.run / "run.toml").exists()
        if not has_started:
            shutil.rmtree(self.run, ignore_errors=True)
        start = ("--resume", self.run) if has_started else (self.run_file, "--out", self.run)
        return self.children.start_attendo("train", *start, *more, before=faults)

    def _finish(self) -> None:
        assert outcome(self.run) == self.expected
        assert leftover_files(self.run) == []
        shutil.rmtree(self.run)
        self.finished += 1


def test_R3_replaced_model_is_removed_by_a_restart(prepared: Path, tmp_path: Path) -> None:
    run = train_to_the_end(begin(run_config({"prepared": prepared}, {"steps": 2}), tmp_path / "run"))
    model, old = run.folder / "model", run.folder / ".old-model"
    shutil.copytree(model, old)  # as left by a kill after the new folder was moved into place
    resume(run.folder)
    assert leftover_files(run.folder) == []
    model.rename(old)  # as left by a kill before that
    resume(run.folder)
    assert old.is_dir(), "the only model was removed"


@pytest.fixture
def kill_test(children: Children, prepared: Path, tmp_path: Path, in_thread: bool) -> KillTest:
    train = {"save_every": 2, "validate_every": 6, "async_checkpoints": in_thread}
    config = run_config({"prepared": prepared}, train, model={"dropout": 0.2})
    return KillTest(children, write_run_file(tmp_path / "run.toml", config), tmp_path / "storm")


@pytest.mark.parametrize("in_thread", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "in a thread"])
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_R3_killed_run_equals_the_undisturbed_run(kill_test: KillTest, kills: int) -> None:
    chance = random.Random(kills)
    while kill_test.kills < kills:
        if kill_test.kills_in_saves < kills // 2:
            kill_test.resume_and_kill(
                disk_call=chance.randint(1, DISK_CALLS), how=chance.choice(["before", "half", "after"])
            )
        else:
            kill_test.resume_and_kill(seconds=chance.uniform(0, kill_test.seconds))
    kill_test.finish_last_run()
    assert (kill_test.kills, kill_test.kills_in_saves) == (kills, kills // 2)
