"""Starts `attendo serve` on a free port for a load test, and loads the texts to send."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from attendo.data.corpus_files import read_lines
from attendo.demo_task import BuiltinTask
from attendo.errors import AttendoError, DataError
from attendo.runs.commands import last_line, make_command, run_attendo

_START_TIMEOUT = 300.0  # seconds; a large model is loaded, verified and compiled
_STOP_TIMEOUT = 20.0
_EXIT_TIMEOUT = 1.0
_ADDRESS_PREFIX = "http://"  # start of the line that `attendo serve` prints when it listens


class ServerError(AttendoError):
    """A server that was started for a load test did not become ready."""


@dataclass(frozen=True)
class RunningServer:
    """A server that has printed its address."""

    url: str
    pid: int


@contextmanager
def start_server(folders: Sequence[Path], *options: str) -> Iterator[RunningServer]:
    """Run `attendo serve` with these options in a process until the block ends."""
    command = make_command("serve", *map(str, folders), "--port", "0", *options)
    with TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield RunningServer(_wait_for_address(process, errors), process.pid)
        finally:
            _stop(process)


@contextmanager
def export_temporarily(folder: Path, engine: str) -> Iterator[Path]:
    """Export the model for another engine to a temporary folder, which is removed after the block."""
    with TemporaryDirectory(prefix="attendo-bench-") as temporary:
        out = Path(temporary, engine)
        run_attendo(["export", str(folder), str(out), "--to", engine])
        yield out


def _wait_for_address(process: "subprocess.Popen[str]", errors: IO[str]) -> str:
    assert process.stdout is not None
    until = time.monotonic() + _START_TIMEOUT
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and selector.select(left):
            line = process.stdout.readline()
            if line.startswith(_ADDRESS_PREFIX):
                return line.strip().rstrip("/")
            if not line:
                break
    with suppress(subprocess.TimeoutExpired):  # a process that is about to end has a more useful exit code
        process.wait(_EXIT_TIMEOUT)
    process.kill()
    errors.seek(0)
    raise ServerError("server_start_failed", reason=last_line(errors.read(), process.wait()))


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def load_texts(path: Path | None, max_texts: int = 500) -> list[str]:
    """Return at most `max_texts` non-empty texts of the file, or of the built-in task without a file."""
    lines = (pair.source for pair in BuiltinTask().train()) if path is None else read_lines(path)
    found = list(islice((line for line in lines if line.strip()), max_texts))
    if not found:
        raise DataError("file_has_no_text", path=path)
    return found
