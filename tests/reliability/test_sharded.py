"""R9: weights that are divided among the processes learn as whole ones do, and a checkpoint is the same for both."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Children
from safetensors.torch import load_file
from small_run import STEPS, reports, sha256, write_run_file
from together import Trained, assert_same_network, at_once, config, snapshot, started_together

from attendo.train.checkpoint import eval_weights

# The rest has no say in what is learned: the weights of the model folder are those of the end, and text is decoded.
SHARDED: dict[str, Any] = {"sharding": "full", "final": "last", "samples": 2, "metrics": ("exact_match",)}
ENDING_ALONE = pytest.mark.parametrize("ranks", [(2, 1), pytest.param((1, 2, 4, 1), marks=pytest.mark.slow)], ids=str)


@pytest.mark.slow
@ENDING_ALONE
def test_R9_divided_weights_learn_as_whole_ones_do(trained: Trained, ranks: tuple[int, ...]) -> None:
    assert_same_network(trained(1), trained(*ranks, **SHARDED))


@pytest.mark.slow
def test_R9_a_sharded_run_writes_the_model_that_it_validated(trained: Trained) -> None:
    """The averaged weights."""
    folder = trained(2, **SHARDED)
    written = load_file(folder / "run" / "model" / "weights.safetensors")
    learned = eval_weights(snapshot(folder))
    assert written.keys() == learned.keys()
    assert all(torch.equal(written[name], learned[name]) for name in learned)


@pytest.mark.slow
@ENDING_ALONE
def test_R9_divided_weights_decode_as_whole_ones_do(trained: Trained, ranks: tuple[int, ...]) -> None:
    divided, changing = (decoded(trained(*each, **SHARDED)) for each in [(2,), ranks])
    assert divided == changing
    assert len(divided) == 3


def decoded(folder: Path) -> list[str]:
    return [path.read_text("utf-8") for path in sorted((folder / "run" / "validation").glob("step-*.txt"))]


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("saved_by", "ranks"), [(1, 2), (2, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 4), (2, 2)))]
)
def test_R9_a_checkpoint_goes_from_whole_to_divided_and_back_to_the_last_bit(
    children: Children, trained: Trained, tmp_path: Path, saved_by: int, ranks: int
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    shutil.copytree(trained(saved_by, **(SHARDED if saved_by > 1 else {})) / "run", run)
    ended = at_once(children, [[("save_again", {"run": str(run), "target": str(again)})]] * ranks)
    assert [each.code for each in ended] == [0] * ranks, ended
    parts = ["model", "optimizer"]
    parts += ["random"] if ranks == saved_by else []  # then the run goes on bit for bit
    for part in parts:
        file = f"step-{STEPS:08d}/{part}.safetensors"
        assert sha256(again / file) == sha256(run / "checkpoints" / file)
    assert_divided([json.loads(each.output) for each in ended], run)


def assert_divided(held: list[dict[str, int]], run: Path) -> None:
    """Every number is held by one process, and none holds many more than the others."""
    total = sum(tensor.numel() for tensor in load_file(run / "model" / "weights.safetensors").values())
    for kind in ("weights", "moments"):
        assert sum(each[kind] for each in held) == total
        assert max(each[kind] for each in held) < 1.1 * total / len(held)
    assert [each["whole"] for each in held] == [total if len(held) == 1 else 0] * len(held)


@pytest.mark.slow
def test_R10_a_gradient_that_is_no_number_on_one_process_changes_no_part(
    children: Children, prepared: Path, tmp_path: Path
) -> None:
    settings = config(prepared, sharding="full", save_every=1, keep_last=9)
    arguments = [str(write_run_file(tmp_path / "run.toml", settings)), "--out", str(tmp_path / "run"), "--stop-at", "4"]
    ended = started_together(children, 2, tmp_path, arguments, {1: ("spoil_loss", {"batch": 5})})
    assert [each.code for each in ended] == [0, 0], ended
    assert "divided among 2 processes" in ended[0].errors
    assert [line["step"] for line in reports(tmp_path / "run") if line["kind"] == "step" and line["skipped"]] == [3]
    for file in ("model.safetensors", "optimizer.safetensors"):
        paths = [tmp_path / "run" / "checkpoints" / f"step-{step:08d}" / file for step in (2, 3, 4)]
        before, skipped, after = map(sha256, paths)
        assert before == skipped != after
