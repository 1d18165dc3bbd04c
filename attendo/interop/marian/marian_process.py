"""Marian itself, as the other side of a comparison. It runs in its own process, because a fault in Marian aborts it.

Marian is the package `pymarian`, which is 1 GB and not a dependency of attendo.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from attendo.errors import ModelError, UsageError, cut_line
from attendo.interop.errors import MAX_ERROR_CHARS

PACKAGE, MODULE = "pymarian", "_pymarian"
PACKAGE_VERSION = "1.12.42"  # for which the comparison was tested
# Reads requests from standard input, one JSON object per line. Marian's own output to standard output is discarded.
_TRANSLATOR = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
import _pymarian
translator = _pymarian.Translator(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps(translator.translate(request["lines"], **request["options"])), file=answers, flush=True)
"""
_MAIN = "import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))"


def require_marian(code: str = "import_proof_needs_marian") -> None:
    """Raise a `UsageError` with this code if Marian is not installed."""
    if find_spec(MODULE) is None:
        raise UsageError(code, package=PACKAGE, version=PACKAGE_VERSION)


def marian_name() -> str:
    try:
        return f"Marian {version(PACKAGE)}"
    except PackageNotFoundError:
        return "Marian"


def run_marian(arguments: Sequence[str], folder: Path) -> list[str]:
    """Run a command of Marian in a folder, such as `score`, and return the lines of its output."""
    ended = subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=_environment(),
        check=False,
    )
    if ended.returncode:
        raise _make_error(ended.stderr)
    return ended.stdout.splitlines()


class MarianTranslator:
    """A running decoder of Marian."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log

    def translate(self, lines: Sequence[str], options: Mapping[str, Any]) -> list[str]:
        """Return the output for each line. `options` replace those of the start, by their names in Marian."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"lines": list(lines), "options": dict(options)}) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise _make_error(self._log.read_text("utf-8", errors="replace"))
        found: list[str] = json.loads(answer)
        return found


@contextmanager
def start_translator(options: Sequence[str], folder: Path) -> Iterator[MarianTranslator]:
    """Start a decoder in a folder, which ends with the context. Marian reads no paths with spaces: name files only."""
    log = folder / "marian.log"
    with log.open("w") as errors, _start(options, folder, errors) as process:
        try:
            yield MarianTranslator(process, log)
        finally:
            process.kill()


def _start(options: Sequence[str], folder: Path, errors: IO[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _TRANSLATOR, " ".join(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=folder,
        text=True,
        encoding="utf-8",
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """Return the environment, with the paths where this process finds packages."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def _make_error(log: str) -> ModelError:
    """Return the error with the line in which Marian says why it stopped."""
    lines = [line for line in log.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "error" in line]
    reason = (named or lines or ["no reason"])[0].split("] ", 1)[-1]
    return ModelError("marian_failed", reason=cut_line(reason, MAX_ERROR_CHARS))
