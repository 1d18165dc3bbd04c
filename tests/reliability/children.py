"""Runs commands in child processes without importing torch again: a server imports it once and forks for each."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("fork_server.py")

Job = tuple[str, Mapping[str, Any]]  # the name of a function in jobs.py, and its arguments


@dataclass(frozen=True)
class Ended:
    """The result of a process. A negative code is the number of the signal that killed it."""

    code: int
    output: bytes
    errors: str

    @property
    def error(self) -> str:
        """The error line of a command that failed. Warnings and progress may come before it."""
        assert "Traceback" not in self.errors, self.errors
        *_, last = self.errors.splitlines()
        assert last.startswith("attendo: "), self.errors
        return last.removeprefix("attendo: ")


class Children:
    """Starts child processes. Their input, output and errors are files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )

    def attendo(
        self, *arguments: str | Path, before: Sequence[Job] = (), given: bytes = b"", **environment: str
    ) -> Ended:
        """Run a command and wait for its end."""
        return self.start_attendo(*arguments, before=before, given=given, **environment).wait()

    def start_attendo(
        self, *arguments: str | Path, before: Sequence[Job] = (), given: bytes | None = b"", **environment: str
    ) -> "Child":
        command = ("attendo_command", {"arguments": [str(each) for each in arguments]})
        return self.start([*before, command], given, **environment)

    def start(self, jobs: Sequence[Job], given: bytes | None = b"", **environment: str) -> "Child":
        """Start one process that runs the jobs in order, with these bytes on standard input.

        If `given` is None, its input and output are pipes, which the caller must open, the input first.
        """
        self._number += 1
        streams = [self._folder / f"{self._number}.{name}" for name in ("input", "output", "errors")]
        if given is None:
            for path in streams[:2]:
                os.mkfifo(path)
        else:
            streams[0].write_bytes(given)
            streams[1].touch()  # exists even if the process is killed before it starts
        streams[2].touch()
        pid = self.request({"jobs": jobs, "streams": [str(path) for path in streams], "environment": environment})
        return Child(self, pid, *streams)

    def request(self, message: Mapping[str, Any]) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(message) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the server has died"
        return int(answer)

    def close(self) -> None:
        """End the server by closing its standard input."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


class Child:
    def __init__(self, children: Children, pid: int, given: Path, output: Path, errors: Path) -> None:
        self._children, self.pid, self.given, self.output, self._errors = children, pid, given, output, errors

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)  # the pid stays reserved until the process is waited for

    def wait(self) -> Ended:
        code = self._children.request({"wait": self.pid})
        output = self.output.read_bytes() if self.output.is_file() else b""
        return Ended(code, output, self._errors.read_text("utf-8"))
