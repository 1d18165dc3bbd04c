"""`attendo average`: the mean of the last checkpoints as a model folder."""

import shutil
from pathlib import Path

import pytest
import torch
from error_codes import fragment
from running import some_text
from safetensors.torch import load_file
from tiny import QUICK_RUN, SOURCES, Command, settings, tiny_model, write_pairs

from attendo.model_folder import load_model
from attendo.text_model import load

SAVED = ("train.steps=6", "train.save_every=1", "train.validate_every=6")


@pytest.fixture
def run(attendo: Command, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with six saved checkpoints: the last three remain, and the last one is the best. Copied for each test."""
    folder = tmp_path_factory.getbasetemp() / "run-to-average"
    if not folder.exists():
        folder.mkdir()
        source, target = write_pairs(folder)
        options = ["--source", source, "--target", target, "--out", folder / "run"]
        done = attendo("train", *options, *settings(*QUICK_RUN, *SAVED))
        assert done.code == 0, done.errors
    return shutil.copytree(folder / "run", tmp_path / "run")


def mean(run: Path, *steps: int) -> dict[str, torch.Tensor]:
    """The mean weights of these checkpoints, computed independently."""
    stored = [load_file(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors") for step in steps]
    return {name: torch.stack([each[name].double() for each in stored]).mean(0).float() for name in stored[0]}


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("options", "steps"),
    [([], (4, 5, 6)), (["--last", "2"], (5, 6)), (["--last", "1"], (6,)), (["--last", "3"], (4, 5, 6))],
)
def test_weights_are_the_mean_of_the_last_checkpoints(
    attendo: Command, run: Path, tmp_path: Path, options: list[str], steps: tuple[int, ...]
) -> None:
    done = attendo("average", run, "--out", tmp_path / "mean", *options)
    assert (done.code, done.output) == (0, "")
    assert done.errors == f"mean of steps {', '.join(map(str, steps))} written to {tmp_path / 'mean'}\n"
    weights = dict(load_model(tmp_path / "mean").network.named_parameters())
    expected = mean(run, *steps)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, expected[name]), name


def test_other_model_files_are_those_of_the_run(attendo: Command, run: Path, tmp_path: Path) -> None:
    attendo("average", run, "--out", tmp_path / "mean")
    averaged, trained = load_model(tmp_path / "mean"), load_model(run / "model")
    assert averaged.network.config == trained.network.config
    assert averaged.sample == trained.sample != []
    assert averaged.scores == {}  # scores of one checkpoint are not valid for the mean
    assert averaged.source_tokenizer.encode(SOURCES[0]) == trained.source_tokenizer.encode(SOURCES[0])
    assert len(load(tmp_path / "mean", "cpu").generate(SOURCES)) == len(SOURCES)


@pytest.mark.slow
def test_generation_settings_are_those_of_the_run(attendo: Command, tmp_path: Path) -> None:
    """Settings from the run file and settings derived from the data."""
    source, target = write_pairs(tmp_path)
    overrides = ("generation.beam=3", "generation.length_penalty=0.5", "data.cut_source=2", "train.final=last")
    options = ["--source", source, "--target", target, "--out", tmp_path / "run"]
    assert attendo("train", *options, *settings(*QUICK_RUN, "train.steps=1", *overrides)).code == 0
    (tmp_path / "a.txt").write_text(some_text(1000), "utf-8")
    text = ["--text", tmp_path / "a.txt", "--out", tmp_path / "text"]
    decoder_only = (
        "preset=tiny",
        "model.num_encoder_layers=0",
        "data.window=16",
        "train.batch_tokens=64",
        "train.samples=0",
    )
    assert attendo("train", *text, *settings(*decoder_only, "tokenizer.kind=characters", "train.steps=1")).code == 0
    for run in ("run", "text"):
        assert attendo("average", tmp_path / run, "--out", tmp_path / f"{run}-mean").code == 0
        averaged, trained = load_model(tmp_path / f"{run}-mean"), load_model(tmp_path / run / "model")
        assert averaged.generation == trained.generation != {}
        assert (averaged.about, averaged.sample) == (trained.about, trained.sample)
    assert load_model(tmp_path / "run-mean").generation["beam"] == 3
    assert load_model(tmp_path / "text-mean").generation == {"max_length_extra": 16}


@pytest.mark.slow
def test_a_fine_tuned_run_can_be_averaged(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    tiny_model(joint=True).save(tmp_path / "old")
    options = ["--source", source, "--target", target, "--out", tmp_path / "run"]
    done = attendo("finetune", tmp_path / "old", *options, *settings("train.batch_tokens=64", *SAVED))
    assert done.code == 0, done.errors
    assert attendo("average", tmp_path / "run", "--out", tmp_path / "mean").code == 0
    weights = dict(load_model(tmp_path / "mean").network.named_parameters())
    for name, weight in mean(tmp_path / "run", 4, 5, 6).items():
        assert torch.equal(weights[name], weight)


def test_too_few_checkpoints_are_a_usage_error(attendo: Command, run: Path, tmp_path: Path) -> None:
    failed = attendo("average", run, "--out", tmp_path / "mean", "--last", "4")
    assert failed.code == 2
    assert fragment("too_few_checkpoints", count=3, last=4) in failed.error
    assert not (tmp_path / "mean").exists()


def test_a_folder_without_a_run_is_a_usage_error(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("average", tmp_path, "--out", tmp_path / "mean")
    assert failed.code == 2
    assert fragment("run_not_found", folder=tmp_path) in failed.error


def test_the_run_itself_is_not_overwritten(attendo: Command, run: Path) -> None:
    failed = attendo("average", run, "--out", run)
    assert failed.code == 2
    assert "is not a model folder" in failed.error
    assert (run / "run.toml").is_file()


def test_an_existing_model_needs_overwrite(attendo: Command, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    tiny_model().save(other)
    before = (other / "manifest.json").read_bytes()
    failed = attendo("average", run, "--out", other)
    assert (failed.code, (other / "manifest.json").read_bytes()) == (2, before)
    assert "--overwrite" in failed.error
    assert attendo("average", run, "--out", other, "--overwrite").code == 0
    assert (other / "manifest.json").read_bytes() != before


def test_a_damaged_checkpoint_exits_with_code_4(attendo: Command, run: Path, tmp_path: Path) -> None:
    damaged = run / "checkpoints" / "step-00000005" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    failed = attendo("average", run, "--out", tmp_path / "mean")
    assert failed.code == 4
    assert str(damaged) in failed.error
