"""Subprocesses run the installed attendo, not a module in the working folder."""

from pathlib import Path

import pytest

from attendo import __version__
from attendo.recipes.jobs import TrainingJob, TrainingJobFinished, run_jobs
from attendo.runs.commands import run_attendo


@pytest.fixture(autouse=True)
def _folder_with_another_attendo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attendo.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)


def test_a_training_job_runs_the_installed_package(tmp_path: Path) -> None:
    job = TrainingJob("version", ["--version"], tmp_path / "version.log")
    *_, last = run_jobs([job], 1)
    assert isinstance(last, TrainingJobFinished)
    assert __version__ in job.log.read_text()


def test_run_attendo_runs_the_installed_package() -> None:
    run_attendo(["--version"])
