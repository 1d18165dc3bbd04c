"""Trains and evaluates as jobs: processes that wait for each other, several at once, with a time limit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .plan import TASKS, Model, Study, write_plan
from .training import is_trained, make_training_command


def run(study: Study, at_once: int, minutes: float | None, stages: str) -> None:
    """Train and evaluate. Exit with code 1 if a job failed."""
    began, stopped = time.monotonic(), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.append(number))

    def is_over() -> bool:
        return bool(stopped) or (minutes is not None and time.monotonic() - began > 60 * minutes)

    (study.out / "models").mkdir(parents=True, exist_ok=True)
    write_plan(study)
    jobs = [job for job in make_jobs(study) if stages in ("all", job.name.partition(" ")[0]) or job.is_done()]
    failed = run_jobs(jobs, at_once, study.out / "logs", is_over)
    if failed:
        sys.exit(f"failed, see {study.out / 'logs'}: {', '.join(failed)}")
    if is_over():
        print("stopped: the same command goes on from here", flush=True)


@dataclass(frozen=True)
class Job:
    """A process. It starts when the jobs that it needs are done. `is_done` reads the disk."""

    name: str
    needs: tuple[str, ...]
    make_command: Callable[[], list[str]]
    is_done: Callable[[], bool]


def make_jobs(study: Study) -> list[Job]:
    """Return the trainings, then the calibrations of judges and the evaluations."""
    jobs = [_make_training(study, model) for model in study.plan.models]
    for judge, texts in study.plan.judged_texts.items():
        jobs.append(_make_evaluation(study, judge.judge_name, texts, (judge,)))
    for model in study.plan.models:
        texts = TASKS[model.task].texts
        judges = [study.plan.find_judge(model, text) for text in texts]
        jobs.append(_make_evaluation(study, model.name, texts, (model, study.plan.find_oracle(model), *judges)))
    return jobs


def _make_training(study: Study, model: Model) -> Job:
    needs = () if model.treatment == "base" else (f"train {model.base.name}",)
    return Job(
        f"train {model.name}", needs, lambda: make_training_command(study, model), lambda: is_trained(study, model)
    )


def _make_evaluation(study: Study, name: str, texts: Sequence[str], models: Sequence[Model]) -> Job:
    command = [sys.executable, "-m", __package__, "evaluate", "--name", name, "--device", study.device]
    command += ["--data", str(study.data), "--out", str(study.out)]
    files = [study.results_file(name, text) for text in texts]
    needs = tuple(dict.fromkeys(f"train {each.name}" for each in models))
    return Job(f"evaluate {name}", needs, lambda: command, lambda: all(file.exists() for file in files))


@dataclass
class RunningJob:
    job: Job
    process: subprocess.Popen[bytes]
    began: float


def run_jobs(jobs: Sequence[Job], at_once: int, logs: Path, is_over: Callable[[], bool]) -> list[str]:
    """Run all jobs, some at once. Return the names of failed jobs. When `is_over`, jobs get SIGTERM and end."""
    logs.mkdir(parents=True, exist_ok=True)
    done = {job.name for job in jobs if job.is_done()}
    waiting, running, failed = [job for job in jobs if job.name not in done], list[RunningJob](), list[str]()
    try:
        while (waiting or running) and not is_over():
            ready = next((job for job in waiting if done.issuperset(job.needs)), None)
            if ready is not None and len(running) < at_once:
                waiting.remove(ready)
                running.append(_start(ready, at_once, logs))
                continue
            if not running:
                break  # what waits needs a failed job
            time.sleep(0.2)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                job, code = each.job, each.process.returncode
                print(f"{job.name}: exit code {code} after {time.monotonic() - each.began:.0f} s", flush=True)
                (failed.append if code or not job.is_done() else done.add)(job.name)
    finally:
        for each in running:
            with suppress(ProcessLookupError):
                each.process.terminate()
        for each in running:  # they save. A killed process can crash others on the same GPU (MPS)
            each.process.wait()
            print(f"{each.job.name}: stopped after {time.monotonic() - each.began:.0f} s", flush=True)
    left = len(waiting) + len(running)
    print(f"{len(done)} jobs done, {len(failed)} failed, {left} left", flush=True)
    return failed


def _start(job: Job, at_once: int, logs: Path) -> RunningJob:
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))}
    print(f"{job.name}: begun", flush=True)
    with (logs / f"{job.name.replace(' ', '-')}.log").open("ab") as log:
        process = subprocess.Popen(
            job.make_command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**threads, **os.environ},
            process_group=0,  # Ctrl-C reaches only this process, which stops the others
        )
    return RunningJob(job, process, time.monotonic())
