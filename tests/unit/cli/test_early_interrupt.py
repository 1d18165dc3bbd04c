"""Signals during start-up, before the command runs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A module whose import takes long, and an extension that replaces exceptions raised during its import.
WAITS = "import time\nprint('importing', flush=True)\nwhile True:\n    time.sleep(0.01)\n"
REPLACES = "try:\n    import waits\nexcept BaseException as error:\n    raise ImportError('torch') from error\n"
SIGNALS = [
    (signal.SIGTERM, 143, "attendo: stopped by SIGTERM\n"),
    (signal.SIGHUP, 129, "attendo: stopped by SIGHUP\n"),
    (signal.SIGINT, 130, "attendo: interrupted\n"),
]


def interrupt(folder: Path, number: int, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run `attendo describe tiny` with the modules in the folder, and send the signal during the import of one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    signals = "import signal\nfor each in (signal.SIGTERM, signal.SIGHUP): signal.signal(each, signal.SIG_DFL)\n"
    signals += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # the parent process may ignore them
    program = f"{signals}{before}\nimport sys; sys.argv[0] = 'attendo'\nfrom attendo.cli.entry import main; main()"
    command = [sys.executable, "-c", program, "describe", "tiny"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        output, errors = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@pytest.mark.short(1)
@pytest.mark.parametrize(("number", "code", "line"), SIGNALS)
@pytest.mark.parametrize("module", ["typer", "torch"])
def test_a_signal_during_an_import_prints_one_line(
    tmp_path: Path, module: str, number: int, code: int, line: str
) -> None:
    (tmp_path / f"{module}.py").write_text(WAITS, "utf-8")
    done = interrupt(tmp_path, number)
    assert (done.returncode, done.stderr) == (code, line)


@pytest.mark.short(1)
@pytest.mark.parametrize(("number", "code", "line"), SIGNALS)
def test_a_signal_replaced_by_an_import_error_prints_one_line(
    tmp_path: Path, number: int, code: int, line: str
) -> None:
    (tmp_path / "waits.py").write_text(WAITS, "utf-8")
    (tmp_path / "torch.py").write_text(REPLACES, "utf-8")
    done = interrupt(tmp_path, number)
    assert (done.returncode, done.stderr) == (code, line)


def test_a_second_signal_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept SystemExit:\n"
        "    print('importing', flush=True)\nwhile True:\n    time.sleep(0.01)\n",
        "utf-8",
    )
    assert interrupt(tmp_path, signal.SIGTERM).returncode == -signal.SIGTERM


def test_an_ended_forked_worker_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        # Python drops a signal that arrives during the fork, so the worker reports when it has started.
        "import os, signal, time\nhear, say = os.pipe()\nworker = os.fork()\n"
        "if not worker:\n    os.write(say, b'x')\n    while True: time.sleep(0.01)\n"
        "os.read(hear, 1)\nos.kill(worker, signal.SIGTERM)\n"
        "ended = os.waitpid(worker, 0)[1]\nassert ended == signal.SIGTERM\n"
        "print('importing', flush=True)\nwhile True:\n    time.sleep(0.01)\n",
        "utf-8",
    )
    assert interrupt(tmp_path, signal.SIGTERM).stderr == "attendo: stopped by SIGTERM\n"


def test_an_ignored_hangup_signal_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('importing', flush=True)\ninput()\nraise SystemExit(5)\n", "utf-8")
    ignored = (
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nimport io; sys = __import__('sys'); sys.stdin = io.StringIO('x')"
    )
    assert interrupt(tmp_path, signal.SIGHUP, ignored).returncode == 5
