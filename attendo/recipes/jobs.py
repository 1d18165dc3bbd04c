"""Several trainings at once, each a process of its own with a log file."""

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

_POLL_SECONDS = 0.2  # seconds between two looks
_THREADS_VARIABLE = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class TrainingJob:
    """Arguments of `attendo`, and where its words go."""

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
    """Nothing has happened: a moment to ask for the end, by closing the stream."""


class JobError(AttendoError):
    """A training failed; the code is its own."""

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
    """In their order, so many at once. Whatever ends the stream early, those at work are asked to save and end."""
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
    }  # or they would stand in each other's way
    with job.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attendo", *job.arguments],  # -P: no module of the working folder
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**threads, **os.environ},
            process_group=0,  # Ctrl-C comes to us alone; a second signal would keep them from saving
        )
    return _RunningJob(job, process, time.monotonic())


def _finish_job(running: _RunningJob) -> TrainingJobFinished:
    if code := running.process.returncode:
        lines = running.job.log.read_text("utf-8", "replace").strip().splitlines()
        last = lines[-1].removeprefix("attendo: ") if lines else "it said nothing"
        exit_code = code if code > 0 else 1
        raise JobError("training_job_failed", exit_code, job=running.job.name, reason=last, log=running.job.log)
    return TrainingJobFinished(running.job, time.monotonic() - running.started_at)


def _terminate_jobs(running: Sequence[_RunningJob]) -> None:
    for each in running:
        with suppress(ProcessLookupError):
            each.process.terminate()
    for each in running:
        each.process.wait()
