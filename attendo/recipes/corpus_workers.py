"""Processes of this machine that work on tasks. Both sides talk in JSON lines over pipes.

A worker reads a line of settings and then one line per task from its standard input. It answers every task by one line
on standard output, or by a line with `error` and `exit_code`. It ends when its input ends.
"""

import json
import os
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from attendo.recipes.jobs import JobError
from attendo.runs.commands import last_line

_TASKS_AHEAD = 2  # tasks that a worker has; it computes one while the other waits
_STOP_SECONDS = 10.0

Answers = SimpleQueue[tuple[int, bytes]]  # worker and line; an empty line is the end of the worker


@dataclass(frozen=True)
class Worker:
    number: int
    process: "subprocess.Popen[bytes]"
    log: Path  # its standard error

    def send(self, message: Mapping[str, Any] | None) -> None:
        """Send settings or a task. None: no more tasks will come."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the worker has ended: `_parse` raises its error
            if message is None:
                self.process.stdin.close()
            else:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()

    def read_answers(self, answers: Answers) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self.number, line))
        answers.put((self.number, b""))


@dataclass
class WorkerPool:
    """Workers with equal settings. The threads of each are its share of the cores, unless OMP_NUM_THREADS is set."""

    command: Sequence[str]
    settings: Mapping[str, Any]
    num_workers: int
    log_folder: Path
    _workers: list[Worker] = field(default_factory=list)
    _readers: list[Thread] = field(default_factory=list)
    _answers: Answers = field(default_factory=SimpleQueue)

    def run(self, tasks: Iterator[Mapping[str, Any]]) -> Generator[dict[str, Any], None, None]:
        """Yield the answers to all tasks in the order in which they come. If a worker fails, stop the others."""
        try:
            for number in range(self.num_workers):
                self._start(number)
            pending = sum(self._send_next(worker, tasks) for _ in range(_TASKS_AHEAD) for worker in self._workers)
            while pending:
                number, line = self._answers.get()
                answer = self._parse(number, line)
                pending += self._send_next(self._workers[number], tasks) - 1
                yield answer
        finally:
            self._stop()

    def _start(self, number: int) -> None:
        log = self.log_folder / f"worker-{number + 1}.log"
        threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.num_workers))}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**threads, **os.environ},
                process_group=0,  # only the parent receives Ctrl-C
            )
        worker = Worker(number, process, log)
        self._workers.append(worker)
        self._readers.append(Thread(target=worker.read_answers, args=(self._answers,), daemon=True))
        self._readers[number].start()
        worker.send({**self.settings, "worker": number})

    def _send_next(self, worker: Worker, tasks: Iterator[Mapping[str, Any]]) -> bool:
        task = next(tasks, None)
        if task is not None:
            worker.send(task)
        return task is not None

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        worker = self._workers[number]
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            if "error" not in answer:
                return answer
            code, reason = answer["exit_code"], answer["error"]
        else:
            code = worker.process.wait()
            reason = last_line(worker.log.read_text("utf-8", "replace"), code)
        raise JobError("corpus_worker_failed", max(code, 1), worker=number + 1, workers=self.num_workers, reason=reason)

    def _stop(self) -> None:
        """End the workers: those that wait for tasks at once, and the others by SIGTERM."""
        for worker in self._workers:
            worker.send(None)
            worker.process.terminate()
        for worker in self._workers:
            try:
                worker.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        for worker, reader in zip(self._workers, self._readers, strict=False):
            reader.join(_STOP_SECONDS)
            assert worker.process.stdout is not None
            worker.process.stdout.close()
