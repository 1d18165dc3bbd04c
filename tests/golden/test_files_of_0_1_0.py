"""A run file, a model folder and a checkpoint of version 0.1.0 load and give the same numbers."""

import json
import zipfile
from pathlib import Path

import pytest
from tiny import Command

import attendo
from attendo.runs.config import load_run_config, read_run_file
from attendo.settings import RenamedSettingWarning

ARCHIVE = Path(__file__).with_name("run-0.1.0.zip")
TARGET = "这只 猫 坐下 了"
LOSSES = [6.136509914024203, 6.095530685869235, 6.218725816258845]  # of steps 4 to 6


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of 6 steps on the built-in task, with the checkpoint of step 3."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path / "run")
    return tmp_path / "run"


def test_run_file_loads(run_folder: Path) -> None:
    values = read_run_file(run_folder / "given.toml")
    assert values["generation"] == {"beam": 2, "groups": 1, "no_repeat_ngram": 3, "at_limit": "end"}
    assert load_run_config(run_folder).generation == {
        "beam": 2,
        "beam_groups": 1,
        "no_repeat_ngram_size": 3,
        "at_limit": "force_eos",
    }
    with pytest.warns(RenamedSettingWarning):
        changed = load_run_config(run_folder, ["generation.no_repeat_ngram=4"])
    assert changed.generation["no_repeat_ngram_size"] == 4


def test_model_folder_loads(run_folder: Path) -> None:
    model = attendo.load(run_folder / "model", device="cpu")
    scores = model.score(["I love you.", "The cat sat."], ["我 爱 你", TARGET])
    assert scores == pytest.approx([-73.67011499404907, -127.44773602485657], rel=1e-4)
    config = model.generation  # the folder has the old names, and a warning would be an error
    assert (config.beam, config.beam_groups, config.no_repeat_ngram_size, config.at_limit) == (2, 1, 3, "force_eos")


def test_checkpoint_loads(run_folder: Path) -> None:
    model = attendo.load(run_folder / "checkpoints" / "step-00000003", device="cpu")
    assert model.score(["The cat sat."], [TARGET]) == pytest.approx([-127.61405730247498], rel=1e-4)


def test_run_resumes_with_the_same_losses(run_folder: Path, attendo: Command) -> None:
    quick = ("--override", "--set", "train.metric_pairs=4")  # the last validation translates these
    outcome = attendo("train", "--resume", run_folder, "--device", "cpu", "--threads", "1", *quick)
    assert outcome.code == 0, outcome.errors
    lines = (run_folder / "metrics.jsonl").read_text("utf-8").splitlines()
    losses = {each["step"]: each["loss"] for each in map(json.loads, lines) if each["kind"] == "step"}
    assert [losses[step] for step in (4, 5, 6)] == pytest.approx(LOSSES, rel=1e-4)
