"""Forks a process for every line of jobs on standard input and prints its pid, or waits for one to end.

The server trains once at the start, so that torch's late imports are done. It has no threads, so forking is safe.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import jobs
import torch.distributed.fsdp  # noqa: F401 - otherwise imported late by the processes that need it
from small_run import begin, run_config, train_to_the_end, write_text

# Modules that commands import when they are called.
import attendo.cli.generate
import attendo.cli.serve
import attendo.cli.train
import attendo.runs.new_run  # noqa: F401

OTHER_FAILURE = 70


def main() -> None:
    os.environ.pop("WORLD_SIZE", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell makes its processes ignore it
    with tempfile.TemporaryDirectory() as folder:
        text = write_text(Path(folder), pairs=40)
        train_to_the_end(begin(run_config(text, {"steps": 2}), Path(folder) / "run"))
    for line in sys.stdin:
        message = json.loads(line)
        answer = _wait(message["wait"]) if "wait" in message else _start(message)
        print(answer, flush=True)


def _start(message: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = OTHER_FAILURE
    try:
        for number, path in enumerate(message["streams"]):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY if number else os.O_RDONLY, 0o600), number)
        os.environ.update(message["environment"])
        for name, arguments in message["jobs"]:
            getattr(jobs, name)(**arguments)
        code = 0
    except SystemExit as exiting:
        code = exiting.code if isinstance(exiting.code, int) else OTHER_FAILURE
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # the child must never run the server's loop
            os._exit(code)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
