"""`attendo train --continue`: the same command begins a run and resumes it."""

from pathlib import Path

import pytest
from error_codes import message
from tiny import Command

from attendo.train.checkpoint import Checkpoints

RUN_FILE = """preset = "tiny"
[data]
task = "builtin"
pairs = 400
[model]
d_model = 16
d_ff = 16
num_heads = 2
[train]
{length}
batch_tokens = 400
validate_every = 4
samples = 0
workers = 0
"""


@pytest.fixture(params=["steps = 4", "epochs = 0.5"])
def run_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE.format(length=request.param))
    return path


@pytest.mark.slow
def test_the_same_command_begins_resumes_and_ends_a_run(attendo: Command, run_file: Path, tmp_path: Path) -> None:
    command = ("train", run_file, "--out", tmp_path / "run", "--continue", "--device", "cpu")
    begun = attendo(*command, "--stop-at", "2")
    assert begun.code == 0, begun.errors
    assert Checkpoints(tmp_path / "run/checkpoints").steps() == [2]
    resumed = attendo(*command)
    assert resumed.code == 0, resumed.errors
    assert "going on from step 2" in resumed.errors
    again = attendo(*command)
    assert again.code == 0, again.errors
    changed = attendo(*command, "--set", "train.batch_tokens=300")
    assert changed.code == 2
    assert "train.batch_tokens = 300" in changed.error


def test_continue_and_overwrite_exclude_each_other(attendo: Command, run_file: Path, tmp_path: Path) -> None:
    refused = attendo("train", run_file, "--out", tmp_path / "run", "--continue", "--overwrite")
    assert (refused.code, refused.error) == (2, message("continue_with_overwrite"))
