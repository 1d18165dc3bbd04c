"""Runs `attendo` commands in processes of their own. Does not import torch."""

import subprocess
import sys
from collections.abc import Sequence

from attendo.errors import AttendoError


def make_command(*arguments: str) -> list[str]:
    """Return the command line of an `attendo` command."""
    return [sys.executable, "-P", "-m", "attendo", *arguments]  # -P: do not import from the working folder


def last_line(output: str, exit_code: int) -> str:
    """Return the last line that a failed command printed: its error."""
    lines = output.strip().splitlines()
    return lines[-1].removeprefix("attendo: ") if lines else f"it printed nothing, and ended with exit code {exit_code}"


def run_attendo(arguments: Sequence[str]) -> None:
    """Run a command in a new process. If it fails, raise its last line with its exit code."""
    command = make_command(*arguments)
    process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if code := process.returncode:
        error = AttendoError("attendo_command_failed", command=arguments[0], reason=last_line(process.stderr, code))
        error.exit_code = max(code, 1)
        raise error
