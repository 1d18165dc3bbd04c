"""Forks a process for every line of jobs on standard input, and answers with its number; or waits for one to end.

It has trained once itself, so that whatever torch imports late is there already, and has no threads: forking is safe.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import jobs
import torch.distributed.fsdp  # noqa: F401 - which a process that needs it would import late
from small_run import begin, run_config, train_to_the_end, write_text

# What commands import when they are called.
import attendo.cli.generate
import attendo.cli.serve
import attendo.cli.train
import attendo.runs.new_run  # noqa: F401

OTHER_FAILURE = 70


def main() -> None:
    os.environ.pop("WORLD_SIZE", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
    with tempfile.TemporaryDirectory() as folder:
        text = write_text(Path(folder), pairs=40)
        train_to_the_end(begin(run_config(text, {"steps": 2}), Path(folder) / "run"))
    for line in sys.stdin:
        question = json.loads(line)
        answer = _wait(question["wait"]) if "wait" in question else _start(question)
        print(answer, flush=True)


def _start(question: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = OTHER_FAILURE
    try:
        for number, path in enumerate(question["streams"]):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY if number else os.O_RDONLY, 0o600), number)
        os.environ.update(question["environment"])
        for name, arguments in question["jobs"]:
            getattr(jobs, name)(**arguments)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else OTHER_FAILURE
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # whatever happens, there is one server
            os._exit(code)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
