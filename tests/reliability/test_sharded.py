"""R9: sharded and unsharded training give the same network, and their checkpoints are interchangeable."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Children
from distributed_runs import Trained, assert_same_network, config, run_world, snapshot, start_ranks
from safetensors.torch import load_file
from small_run import STEPS, reports, sha256, write_run_file

from attendo.train.checkpoint import eval_weights

# Only `sharding` matters for training. The other settings write the last weights and decode text at validation.
SHARDED: dict[str, Any] = {"sharding": "full", "final": "last", "samples": 2, "metrics": ("exact_match",)}
RANKS = pytest.mark.parametrize("ranks", [(2, 1), pytest.param((1, 2, 4, 1), marks=pytest.mark.slow)], ids=str)


@pytest.mark.slow
@RANKS
def test_R9_sharded_training_gives_the_same_network(trained: Trained, ranks: tuple[int, ...]) -> None:
    assert_same_network(trained(1), trained(*ranks, **SHARDED))


@pytest.mark.slow
def test_R9_sharded_run_writes_the_validated_model(trained: Trained) -> None:
    """The model folder has the EMA weights."""
    folder = trained(2, **SHARDED)
    written = load_file(folder / "run" / "model" / "weights.safetensors")
    expected = eval_weights(snapshot(folder))
    assert written.keys() == expected.keys()
    assert all(torch.equal(written[name], expected[name]) for name in expected)


@pytest.mark.slow
@RANKS
def test_R9_sharded_weights_decode_the_same_text(trained: Trained, ranks: tuple[int, ...]) -> None:
    sharded, resharded = (decoded_texts(trained(*each, **SHARDED)) for each in [(2,), ranks])
    assert sharded == resharded
    assert len(sharded) == 3


def decoded_texts(folder: Path) -> list[str]:
    return [path.read_text("utf-8") for path in sorted((folder / "run" / "validation").glob("step-*.txt"))]


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("saved_by", "ranks"),
    [
        (1, 2),
        (2, 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 4), (2, 2), (1, 8), (8, 1), (2, 8))),
    ],
)
def test_R9_checkpoints_are_equal_with_and_without_sharding(
    children: Children, trained: Trained, tmp_path: Path, saved_by: int, ranks: int
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    shutil.copytree(trained(saved_by, **(SHARDED if saved_by > 1 else {})) / "run", run)
    ended = run_world(children, [[("save_again", {"run": str(run), "target": str(again)})]] * ranks)
    assert [each.code for each in ended] == [0] * ranks, ended
    parts = ["model", "optimizer"]
    parts += ["random"] if ranks == saved_by else []  # with the same world size the run resumes bit for bit
    for part in parts:
        file = f"step-{STEPS:08d}/{part}.safetensors"
        assert sha256(again / file) == sha256(run / "checkpoints" / file)
    assert_sharded([json.loads(each.output) for each in ended], run)


def assert_sharded(shard_sizes: list[dict[str, int]], run: Path) -> None:
    """Every number is on one process, and the shards have nearly equal sizes."""
    total = sum(tensor.numel() for tensor in load_file(run / "model" / "weights.safetensors").values())
    for kind in ("weights", "moments"):
        assert sum(each[kind] for each in shard_sizes) == total
        assert max(each[kind] for each in shard_sizes) < 1.1 * total / len(shard_sizes)
    assert [each["whole"] for each in shard_sizes] == [total if len(shard_sizes) == 1 else 0] * len(shard_sizes)


@pytest.mark.slow
def test_R10_nan_gradient_on_one_rank_changes_no_shard(children: Children, prepared: Path, tmp_path: Path) -> None:
    settings = config(prepared, sharding="full", save_every=1, keep_last=9)
    arguments = [str(write_run_file(tmp_path / "run.toml", settings)), "--out", str(tmp_path / "run"), "--stop-at", "4"]
    ended = start_ranks(children, 2, tmp_path, arguments, {1: ("make_loss_nan", {"batch": 5})})
    assert [each.code for each in ended] == [0, 0], ended
    assert "divided among 2 processes" in ended[0].errors
    assert [line["step"] for line in reports(tmp_path / "run") if line["kind"] == "step" and line["skipped"]] == [3]
    for file in ("model.safetensors", "optimizer.safetensors"):
        paths = [tmp_path / "run" / "checkpoints" / f"step-{step:08d}" / file for step in (2, 3, 4)]
        before, skipped, after = map(sha256, paths)
        assert before == skipped != after
