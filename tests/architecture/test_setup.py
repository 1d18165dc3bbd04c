"""The environment that `make` sets up. A script that records its arguments replaces Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Records its arguments. A new environment gets a copy of it. pip fails for packages that match $REFUSED.
PYTHON = """#!/bin/sh
echo "$*" >> "$NOTES"
case "$*" in
    "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python;;
    "-m pip install "*) case "$*" in *${REFUSED:-nothing is refused}) exit 1;; esac;;
    *"import ensurepip"*) exit ${NO_VENV:-0};;
    *version_info*) exit ${TOO_OLD:-0};;
    -V) echo "Python 3.9.2";;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


class Checkout:
    """The files that the set-up reads, in a folder with a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        folder.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        self.python = folder / "my python"
        self.python.write_text(PYTHON, "utf-8")
        self.python.chmod(0o755)

    def make(self, target: str, python: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        self.notes.write_text("", "utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        return subprocess.run(
            ["make", target, f"PYTHON={python or self.python}"],
            cwd=self.folder,
            env={**environment, "NOTES": str(self.notes), **variables},
            check=False,
            capture_output=True,
            text=True,
        )

    def installed(self) -> list[str]:
        """The last argument of each `pip install`."""
        lines = self.notes.read_text("utf-8").splitlines()
        return [line.split()[-1] for line in lines if line.startswith("-m pip install")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


def test_torch_then_project_then_extras_are_installed(checkout: Checkout) -> None:
    assert checkout.make(".venv/extras").returncode == 0
    torch, project, extras = checkout.installed()
    assert torch.startswith("torch==")
    assert (project, extras) == (".", ".[all]")


def test_second_run_does_nothing(checkout: Checkout) -> None:
    checkout.make(".venv/extras")
    again = checkout.make(".venv/extras")
    assert again.returncode == 0
    assert checkout.notes.read_text("utf-8") == ""


def test_failed_setup_resumes_in_the_same_environment(checkout: Checkout) -> None:
    failed = checkout.make(".venv/dev", REFUSED="--editable .")
    assert failed.returncode != 0
    assert "make: pip could not install this" in failed.stderr
    assert checkout.make(".venv/dev").returncode == 0
    assert "-m venv" not in checkout.notes.read_text("utf-8")
    assert checkout.installed()[-1] == ".[dev]"


def test_environment_without_pip_is_rebuilt(checkout: Checkout) -> None:
    (checkout.folder / ".venv").mkdir()
    assert checkout.make(".venv/core").returncode == 0
    assert "-m venv --clear .venv" in checkout.notes.read_text("utf-8")


def test_missing_extras_are_a_warning(checkout: Checkout) -> None:
    done = checkout.make(".venv/extras", REFUSED=".[[]all[]]")
    assert done.returncode == 0
    assert "make: some extras could not be installed" in done.stderr
    assert checkout.make(".venv/extras").returncode == 0  # installed again
    assert checkout.installed() == [".[all]"]


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"TOO_OLD": "1"}, "attendo needs Python 3.11 or newer, not Python 3.9.2"),
        ({"NO_VENV": "1"}, "cannot make virtual environments: apt install python3-venv"),
    ],
)
def test_unusable_python_is_rejected_in_one_line(checkout: Checkout, variables: dict[str, str], error: str) -> None:
    done = checkout.make(".venv/core", **variables)
    assert done.returncode != 0
    first, *rest = done.stderr.splitlines()
    assert error in first
    assert all("***" in line for line in rest)  # make's own last line
    assert not (checkout.folder / ".venv").exists()


def test_missing_python_is_rejected_in_one_line(checkout: Checkout) -> None:
    done = checkout.make(".venv/core", python="python-none")
    assert done.returncode != 0
    assert done.stderr.startswith("make: there is no python-none here: install Python 3.11 or newer")
