"""Recipes that a CPU can train come out as expected."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from attendo.cli.main import main; main()", "reproduce"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recipe", ["scan_simple_small", "inflection_quechua"])
def test_a_small_recipe_reaches_its_numbers(recipe: str, shared: Path, tmp_path: Path) -> None:
    asked = [*COMMAND, recipe, "--data", shared / "data", "--out", tmp_path, "--seeds", "1", "--device", "cpu"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("pass: as expected\n")
