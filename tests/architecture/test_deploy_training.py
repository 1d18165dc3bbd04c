"""The SLURM and Kubernetes examples: their own validators accept them, and attendo has the options that they use."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from attendo.cli.main import app

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BATCH, JOB = DEPLOY / "train.sbatch", DEPLOY / "train.yaml"
# Options of `man sbatch` (23.11) that take part here.
SBATCH = {"job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "mem", "time", "output"}
SBATCH |= {"open-mode", "no-kill", "signal", "requeue", "partition", "account", "error", "exclusive", "constraint"}
FLAGS = {"no-kill", "requeue", "exclusive"}
NAMES = {"--nnodes", "--nproc-per-node", "--max-restarts", "--rdzv-backend", "--rdzv-id", "--rdzv-endpoint"}


def list_words(path: Path) -> list[str]:
    """The words after torchrun, without YAML's dashes and without comments."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.strip().startswith("#")]
    text = re.sub(r"^\s*- ", "", "\n".join(lines).split("torchrun", 1)[1], flags=re.MULTILINE)
    return text.replace("\\\n", " ").replace("=", " ").split()


def train_options() -> set[str]:
    root: Any = typer.main.get_command(app)
    command = root.commands["train"]
    return {name for each in command.get_params(typer.Context(command)) for name in each.opts}


@pytest.mark.parametrize("path", [BATCH, JOB], ids=["slurm", "kubernetes"])
def test_options_of_torchrun_and_train_exist(path: Path) -> None:
    words = list_words(path)
    of_torchrun, of_train = words[: words.index("attendo")], words[words.index("attendo") :]
    used = {word for word in of_torchrun if word.startswith("--")}
    assert used == NAMES
    from torch.distributed.run import get_args_parser

    assert used <= {name for action in get_args_parser()._actions for name in action.option_strings}
    named = {word for word in of_train if re.fullmatch(r"--[a-z-]+", word)} & {"--out", "--continue", "--resume"}
    assert named == {"--out", "--continue"}
    assert named <= train_options()


def test_both_examples_have_two_machines_with_eight_gpus() -> None:
    text = BATCH.read_text("utf-8")
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert "--nproc-per-node 8" in text
    yaml = JOB.read_text("utf-8")
    assert "parallelism: 2\n" in yaml
    assert "completions: 2\n" in yaml
    assert "nvidia.com/gpu: 8\n" in yaml
    assert "--nproc-per-node=8\n" in yaml
    assert set(re.findall(r":(29\d{3})|port: (29\d{3})", yaml)) == {("29500", ""), ("", "29500")}


def test_options_of_sbatch_exist_and_come_first() -> None:
    lines = BATCH.read_text("utf-8").splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line) for line in lines if line.startswith("#SBATCH")]
    assert all(options)
    for match in options:
        assert match is not None
        assert match[1] in SBATCH
        assert (match[2] is None) is (match[1] in FLAGS), match[0]
    first_command = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:]), "sbatch ignores these"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_accepts_the_script() -> None:
    done = subprocess.run(["shellcheck", "--shell=bash", str(BATCH)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("kubernetes-validate") is None, reason="kubernetes-validate is not installed")
def test_kubernetes_accepts_the_job() -> None:
    command = ["kubernetes-validate", "--strict", str(JOB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
