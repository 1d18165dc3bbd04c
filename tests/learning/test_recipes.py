"""Recipes that train on a CPU reach their expected scores."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from attendo.cli.main import main; main()", "reproduce"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recipe", ["scan_simple_small", "inflection_quechua"])
def test_small_recipe_reaches_its_scores(recipe: str, shared: Path, tmp_path: Path) -> None:
    command = [*COMMAND, recipe, "--data", shared / "data", "--out", tmp_path, "--seeds", "1", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("pass: as expected\n")
