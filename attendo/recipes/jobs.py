"""Runs several training jobs in parallel, each in its own process with a log file."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attendo.errors import AttendoError

_POLL_SECONDS = 0.2  # poll interval
_THREADS_VARIABLE = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class TrainingJob:
    """Arguments of `attendo`, and the path of its log."""

    name: str
    arguments: Sequence[str]
    log: Path


@dataclass(frozen=True)
class TrainingJobStarted:
    job: TrainingJob


@dataclass(frozen=True)
class TrainingJobFinished:
    job: TrainingJob
    seconds: float


@dataclass(frozen=True)
class TrainingJobsPending:
    """Emitted at every poll without an event. The caller may close the stream here to stop the jobs."""


class JobError(AttendoError):
    """A training job failed. The exit code is that of the job."""

    def __init__(self, code: str, /, exit_code: int = 1, **values: object) -> None:
        super().__init__(code, **values)
        self.exit_code = exit_code


@dataclass(frozen=True)
class _RunningJob:
    job: TrainingJob
    process: "subprocess.Popen[bytes]"
    started_at: float


def run_jobs(
    jobs: Sequence[TrainingJob], max_parallel: int
) -> Generator[TrainingJobStarted | TrainingJobFinished | TrainingJobsPending, None, None]:
    """Run jobs in order, at most `max_parallel` at once. If the stream ends early, running jobs save and terminate."""
    waiting, running = deque(jobs), list[_RunningJob]()
    try:
        while waiting or running:
            while waiting and len(running) < max_parallel:
                running.append(_start(waiting.popleft(), max_parallel))
                yield TrainingJobStarted(running[-1].job)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                yield _finish_job(each)
            if running:
                yield TrainingJobsPending()
                time.sleep(_POLL_SECONDS)
    finally:
        _terminate_jobs(running)


def _start(job: TrainingJob, max_parallel: int) -> _RunningJob:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    threads = {
        _THREADS_VARIABLE: str(max(1, (os.cpu_count() or 1) // max_parallel))
    }  # more threads would contend for the cores
    with job.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attendo", *job.arguments],  # -P: do not import from the working folder
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**threads, **os.environ},
            process_group=0,  # only the parent receives Ctrl-C; a second signal would prevent saving
        )
    return _RunningJob(job, process, time.monotonic())


def _finish_job(running: _RunningJob) -> TrainingJobFinished:
    if code := running.process.returncode:
        lines = running.job.log.read_text("utf-8", "replace").strip().splitlines()
        last = lines[-1].removeprefix("attendo: ") if lines else "it printed nothing"
        exit_code = code if code > 0 else 1
        raise JobError("training_job_failed", exit_code, job=running.job.name, reason=last, log=running.job.log)
    return TrainingJobFinished(running.job, time.monotonic() - running.started_at)


def _terminate_jobs(running: Sequence[_RunningJob]) -> None:
    for each in running:
        with suppress(ProcessLookupError):
            each.process.terminate()
    for each in running:
        each.process.wait()
