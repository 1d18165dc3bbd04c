"""R2: the same seed gives the same run in new processes, and the stored losses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from children import Children
from small_run import begin, outcome, reports, run_config, train_to_the_end, write_run_file, write_text

GOLDEN = Path(__file__).parents[1] / "golden" / "training_losses.json"


def test_R2_child_process_trains_the_same_run(children: Children, tmp_path: Path) -> None:
    """In this process and in another one: Python orders sets of strings differently in each."""
    config = run_config(write_text(tmp_path), {"steps": 8}, model={"dropout": 0.2})
    ended = children.attendo("train", write_run_file(tmp_path / "run.toml", config), "--out", tmp_path / "one")
    assert ended.code == 0, ended.errors
    train_to_the_end(begin(config, tmp_path / "other"))
    one, other = (outcome(tmp_path / name, 8) for name in ("one", "other"))
    assert one == other
    assert len(one.steps) == 8


@pytest.mark.slow
def test_R2_two_new_processes_train_the_same_run(tmp_path: Path) -> None:
    config = run_config(write_text(tmp_path), {"steps": 8}, model={"dropout": 0.2})
    run_file = write_run_file(tmp_path / "run.toml", config)
    command = [sys.executable, "-m", "attendo", "train", str(run_file), "--device", "cpu", "--out"]
    running = [subprocess.Popen([*command, str(tmp_path / name)], stderr=subprocess.PIPE) for name in ("one", "other")]
    for each in running:
        _, errors = each.communicate()
        assert each.returncode == 0, errors
    one, other = (outcome(tmp_path / name, 8) for name in ("one", "other"))
    assert one == other
    assert len(one.steps) == 8


def test_R2_another_seed_gives_another_run(tmp_path: Path, prepared: Path) -> None:
    losses = []
    for seed in (1, 2):
        run = begin(run_config({"prepared": prepared}, {"steps": 2}, seed=seed), tmp_path / f"{seed}")
        losses.append([line["loss"] for line in reports(train_to_the_end(run).folder) if line["kind"] == "step"])
    assert losses[0] != losses[1]


def test_R2_losses_match_the_stored_ones(tmp_path: Path, prepared: Path) -> None:
    """Measured on a CPU with torch 2.13. Other losses mean that training computes something else."""
    run = begin(run_config({"prepared": prepared}, {"steps": 20, "label_smoothing": 0.1}), tmp_path / "run")
    lines = [line for line in reports(train_to_the_end(run).folder) if line["kind"] == "step"]
    golden = json.loads(GOLDEN.read_text("utf-8"))
    assert [line["loss"] for line in lines] == pytest.approx(golden["loss"], rel=1e-5)
    assert [line["norm"] for line in lines] == pytest.approx(golden["norm"], rel=1e-4)
    assert [line["tokens"] for line in lines] == golden["tokens"]
