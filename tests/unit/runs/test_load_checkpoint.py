"""Loading a checkpoint as a model."""

import shutil
from pathlib import Path

import pytest
import torch
from error_codes import has_code
from safetensors.torch import load_file
from tiny import Command, write_pairs

import attendo as package
from attendo.errors import ModelError
from attendo.runs.config import RunConfig
from attendo.runs.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at steps 2 and 4 and an EMA of the weights."""
    folder = tmp_path_factory.mktemp("checkpoints")
    source, target = write_pairs(folder)
    train = {"steps": 4, "batch_tokens": 64, "validate_every": 4, "save_every": 2, "workers": 0, "warmup": 2}
    config = RunConfig(
        preset="tiny",
        data={"source": source, "target": target},
        tokenizer={"kind": "words"},
        model={"d_model": 16, "num_heads": 2, "d_ff": 24},
        train={**train, "ema": 0.9},
    )
    run = Run.begin(config, folder / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    for _ in run.train():
        pass
    run.finish()
    return folder / "run"


def test_a_checkpoint_loads_its_ema_weights(trained: Path) -> None:
    folder = trained / "checkpoints" / "step-00000002"
    stored = load_file(folder / "optimizer.safetensors")
    average = {name.removeprefix("average/"): each for name, each in stored.items() if name.startswith("average/")}
    assert average
    model = package.load(folder, "cpu")
    for name, weight in model.network.named_parameters():
        assert torch.equal(weight, average[name]), name
    last = package.load(trained / "model", "cpu")
    assert model.source_tokenizer == last.source_tokenizer
    assert not torch.equal(model.network.output.weight, last.network.output.weight)


def test_commands_accept_a_checkpoint_folder(attendo: Command, trained: Path) -> None:
    folder = trained / "checkpoints" / "step-00000002"
    pairs = ["--source", trained.parent / "train.source", "--target", trained.parent / "train.target"]
    for command in (
        ["generate", folder, "the cat", "--max-length", "5"],
        ["score", folder, *pairs],
        ["trace", folder, "the cat", "--target", "猫"],
        ["describe", folder],
    ):
        done = attendo(*command)
        assert done.code == 0, done.errors
        assert done.output


def test_without_a_model_folder_the_tokenizer_comes_from_the_data(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    checkpoint = Path("checkpoints") / "step-00000002"
    one, other = (package.load(run / checkpoint, "cpu") for run in (trained, tmp_path / "run"))
    assert one.generate(["the cat"])[0].ids == other.generate(["the cat"])[0].ids


def test_damaged_or_moved_checkpoints_are_rejected(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "checkpoints" / "step-00000002", tmp_path / "step-00000002")
    with pytest.raises(ModelError, check=has_code("checkpoint_outside_run")):
        package.load(tmp_path / "step-00000002")
    shutil.copytree(trained, tmp_path / "run")
    weights = tmp_path / "run" / "checkpoints" / "step-00000002" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelError, check=has_code("file_checksum_mismatch")):
        package.load(weights.parent)
