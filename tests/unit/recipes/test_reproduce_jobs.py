"""Parallel jobs, each a process with a log file."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from error_codes import has_code

from attendo.recipes import jobs
from attendo.recipes.jobs import JobError, TrainingJob, TrainingJobFinished, TrainingJobStarted, run_jobs

SLEEPER = """#!/bin/sh
# Instead of python -P -m attendo: sleeps, says what it was told, and answers SIGTERM as a training does.
trap 'echo saved; exit 143' TERM
shift 3
echo "$@" threads $OMP_NUM_THREADS
case "$1" in
    fail) until [ -s "$2" ]; do sleep 0.01; done; echo "attendo: no such file" >&2; exit 3 ;;
    wait) while :; do sleep 0.05; done ;;
esac
"""


@pytest.fixture(autouse=True)
def _fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    program = tmp_path / "python"
    program.write_text(SLEEPER)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.02)
    monkeypatch.delenv("OMP_NUM_THREADS")
    return


def job(folder: Path, name: str, *arguments: str) -> TrainingJob:
    return TrainingJob(name, arguments or ("done",), folder / "deep" / f"{name}.log")


def test_jobs_start_in_order_with_a_log_each(tmp_path: Path) -> None:
    wanted = [job(tmp_path, name, "train", name) for name in ("a", "b", "c")]
    events = [
        (type(each), each.job.name)
        for each in run_jobs(wanted, 2)
        if isinstance(each, TrainingJobStarted | TrainingJobFinished)
    ]
    assert [name for kind, name in events if kind is TrainingJobStarted] == ["a", "b", "c"]
    assert sorted(name for kind, name in events if kind is TrainingJobFinished) == ["a", "b", "c"]
    threads = max(1, (os.cpu_count() or 1) // 2)
    assert (tmp_path / "deep" / "b.log").read_text() == f"train b threads {threads}\n"


def test_at_most_the_given_number_of_jobs_run_at_once(tmp_path: Path) -> None:
    now = most = 0
    for report in run_jobs([job(tmp_path, str(number)) for number in range(5)], 2):
        now += isinstance(report, TrainingJobStarted) - isinstance(report, TrainingJobFinished)
        most = max(most, now)
    assert (now, most) == (0, 2)


def test_a_failed_job_reports_its_last_line_and_stops_the_others(tmp_path: Path) -> None:
    good = job(tmp_path, "good", "wait")
    wanted = [good, job(tmp_path, "bad", "fail", str(good.log)), job(tmp_path, "never")]
    with pytest.raises(JobError, check=has_code("training_job_failed", job="bad", reason="no such file")) as failed:
        list(run_jobs(wanted, 2))
    assert failed.value.exit_code == 3
    assert not (tmp_path / "deep" / "never.log").exists()
    assert good.log.read_text().endswith("saved\n")


def test_closing_the_iterator_stops_the_jobs(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "a.log"
    with closing(run_jobs([job(tmp_path, "a", "wait")], 1)) as reports:
        for _ in reports:
            if log.exists() and log.read_text():
                break
            time.sleep(0.01)
    assert log.read_text().endswith("saved\n")


def test_jobs_run_in_their_own_process_group(tmp_path: Path) -> None:
    """Ctrl-C reaches the process group of the terminal, so each job has its own group."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()  # servers of other tests
    with closing(run_jobs([job(tmp_path, "a", "wait")], 1)) as reports:
        next(reports)
        groups = [os.getpgid(int(child)) for child in children.read_text().split() if child not in before]
    assert groups
    assert os.getpgid(0) not in groups
