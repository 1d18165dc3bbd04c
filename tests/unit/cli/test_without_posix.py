"""Starting, loading a model and generating work without POSIX modules."""

import subprocess
import sys
from pathlib import Path

import pytest

# Python on Windows lacks these modules, functions and signals.
HIDE = """
import os, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
del signal.SIGHUP, os.fork
"""


@pytest.mark.slow
def test_help_and_generation_need_no_posix(saved_model: Path) -> None:
    program = f"{HIDE}import attendo\nprint(attendo.load(sys.argv[1]).generate(['the cat'])[0].text)\n"
    program += "sys.argv = ['attendo', '--help']\nfrom attendo.cli.entry import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", program, str(saved_model)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: attendo" in done.stdout
