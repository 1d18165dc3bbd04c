"""Ctrl-C before a command has begun."""

import os
import subprocess
import sys
from pathlib import Path


def test_ctrl_c_while_commands_are_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n", "utf-8")  # as if it came just then
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "attendo", "serve", "model"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "attendo: interrupted\n")
