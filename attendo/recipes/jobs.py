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

_WAIT = 0.2  # seconds between two looks
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Job:
    """Arguments of `attendo`, and where its words go."""

    name: str
    arguments: Sequence[str]
    log: Path


@dataclass(frozen=True)
class Started:
    job: Job


@dataclass(frozen=True)
class Ended:
    job: Job
    seconds: float


@dataclass(frozen=True)
class Waiting:
    """Nothing has happened: a moment to ask for the end, by closing the stream."""


class JobError(AttendoError):
    """A training failed; the code is its own."""

    def __init__(self, code: str, /, exit_code: int = 1, **values: object) -> None:
        super().__init__(code, **values)
        self.exit_code = exit_code


@dataclass(frozen=True)
class _Running:
    job: Job
    process: "subprocess.Popen[bytes]"
    begun: float


def run_jobs(jobs: Sequence[Job], at_once: int) -> Generator[Started | Ended | Waiting, None, None]:
    """In their order, so many at once. Whatever ends the stream early, those at work are asked to save and end."""
    waiting, running = deque(jobs), list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_start(waiting.popleft(), at_once))
                yield Started(running[-1].job)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                yield _ended(each)
            if running:
                yield Waiting()
                time.sleep(_WAIT)
    finally:
        _end(running)


def _start(job: Job, at_once: int) -> _Running:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    threads = {_THREADS: str(max(1, (os.cpu_count() or 1) // at_once))}  # or they would stand in each other's way
    with job.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attendo", *job.arguments],  # -P: no module of the working folder
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**threads, **os.environ},
            process_group=0,  # Ctrl-C comes to us alone; a second signal would keep them from saving
        )
    return _Running(job, process, time.monotonic())


def _ended(run: _Running) -> Ended:
    if code := run.process.returncode:
        lines = run.job.log.read_text("utf-8", "replace").strip().splitlines()
        last = lines[-1].removeprefix("attendo: ") if lines else "it said nothing"
        exit_code = code if code > 0 else 1
        raise JobError("training_job_failed", exit_code, job=run.job.name, reason=last, log=run.job.log)
    return Ended(run.job, time.monotonic() - run.begun)


def _end(running: Sequence[_Running]) -> None:
    for each in running:
        with suppress(ProcessLookupError):
            each.process.terminate()
    for each in running:
        each.process.wait()
