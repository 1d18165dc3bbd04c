"""R9: the number of processes and of data threads does not change a run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from children import Children
from distributed_runs import (
    Trained,
    assert_same_network,
    config,
    pairs,
    run_world,
    snapshot,
    start_ranks,
    train_with_ranks,
)
from small_run import STEPS, Outcome, begin, outcome, reports, run_config, train_to_the_end, write_run_file

from attendo.train.checkpoint import Checkpoints

SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks", [(1, 2), *(pytest.param(each, marks=SLOW) for each in ((2,), (4,), (8,), (1, 2, 4, 1)))], ids=str
)
def test_R9_changing_world_size_gives_the_same_network(trained: Trained, ranks: tuple[int, ...]) -> None:
    assert_same_network(trained(1), trained(*ranks))


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=SLOW)])
def test_R9_several_ranks_train_on_the_same_pairs_in_order(trained: Trained, ranks: int) -> None:
    one, several = pairs(trained(1)), pairs(trained(ranks))
    assert one == several
    assert len(one) == 2 * STEPS


@pytest.mark.slow
def test_R9_resumed_run_of_two_ranks_is_bitwise_equal(trained: Trained) -> None:
    assert outcome(trained(2) / "run") == outcome(trained(2, 2) / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        {"scheduled_sampling": "confidence", "sampling_thresholds": (1.0, 1.0)},
        {"scheduled_sampling": "schedule", "sampling_decay": 1e9, "sampling_position_decay": 1.0},
    ],
    ids=["confidence", "schedule"],
)
def test_R9_two_passes_give_the_same_network_with_two_ranks(trained: Trained, sampling: dict[str, Any]) -> None:
    """With these settings the second pass reads the reference, so no draw depends on the rank."""
    settings = {**sampling, "sampling_start": 0.0}
    assert_same_network(trained(1, **settings), trained(2, **settings))


@pytest.mark.slow
def test_R9_resumed_scheduled_sampling_of_two_ranks_is_bitwise_equal(trained: Trained) -> None:
    settings = {"scheduled_sampling": "confidence", "sampling_thresholds": (0.02, 0.05), "sampling_start": 0.25}
    assert outcome(trained(2, **settings) / "run") == outcome(trained(2, 2, **settings) / "run")


def test_R9_checkpoint_has_the_random_state_of_both_ranks(trained: Trained) -> None:
    random = snapshot(trained(2)).random
    assert {name.split("/")[0] for name in random} == {"rank0", "rank1"}


@pytest.mark.slow
def test_R9_changed_world_size_is_a_warning(children: Children, trained: Trained, tmp_path: Path) -> None:
    errors = train_with_ranks(children, 1, tmp_path, ["--resume", str(trained(2, 2) / "run")])[0].errors
    assert "warning: world_size was 2 and is 1" in errors


def test_R9_main_rank_decides_for_all(children: Children) -> None:
    """Scores that differ in the last bit must not make processes decide differently."""
    ended = run_world(children, [[("print_broadcasts", {})]] * 2)
    assert [json.loads(each.output) for each in ended] == [[0.1, True, True]] * 2


@pytest.mark.slow
def test_R9_signal_to_one_rank_stops_all_at_the_same_step(
    children: Children, prepared: Path, trained: Trained, tmp_path: Path
) -> None:
    run_file, run = write_run_file(tmp_path / "run.toml", config(prepared)), tmp_path / "run"
    fault = ("signal_at_batch", {"batch": 9, "numbers": [signal.SIGTERM]})
    main, other = start_ranks(children, 2, tmp_path, [str(run_file), "--out", str(run)], {1: fault})
    assert (other.code, main.code) == (143, 0)
    assert "stopped at step 5, saved" in main.errors
    assert Checkpoints(run / "checkpoints").steps()[-1] == 5
    train_with_ranks(children, 2, tmp_path, ["--resume", str(run)])
    assert outcome(run) == outcome(trained(2) / "run")


@pytest.mark.slow
def test_R10_nan_gradient_on_one_rank_is_skipped_by_all(children: Children, prepared: Path, tmp_path: Path) -> None:
    run_file, run = write_run_file(tmp_path / "run.toml", config(prepared)), tmp_path / "run"
    fault = ("make_loss_nan", {"batch": 9})
    ended = start_ranks(children, 2, tmp_path, [str(run_file), "--out", str(run)], {1: fault})
    assert [each.code for each in ended] == [0, 0], ended
    assert [line["step"] for line in reports(run) if line["kind"] == "step" and line["skipped"]] == [5]
    skipped = json.loads((run / "skipped.jsonl").read_text("utf-8"))
    assert skipped == {"step": 5, "pairs": [number for batch in pairs(tmp_path)[8:10] for number in batch]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pieces", "workers"),
    [(False, 2), (True, 4), pytest.param(False, 4, marks=SLOW), pytest.param(True, 2, marks=SLOW)],
    ids=["words-2", "BPE-dropout-4", "words-4", "BPE-dropout-2"],
)
def test_R9_number_of_data_workers_changes_no_bit(
    prepared: Path, prepared_pieces: Path, tmp_path: Path, workers: int, pieces: bool
) -> None:
    def train_with_workers(number: int) -> Outcome:
        tokenizer = {"dropout": 0.2} if pieces else {}
        data = prepared_pieces if pieces else prepared
        settings = run_config({"prepared": data}, {"workers": number}, tokenizer=tokenizer, model={"dropout": 0.1})
        return outcome(train_to_the_end(begin(settings, tmp_path / f"{number}")).folder)

    assert train_with_workers(workers) == train_with_workers(0)


@pytest.mark.slow
def test_R9_torchrun_trains_the_same_run(trained: Trained, prepared: Path, tmp_path: Path) -> None:
    run_file = write_run_file(tmp_path / "run.toml", config(prepared))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*torchrun, "-m", "attendo", "train", str(run_file), "--out", str(tmp_path / "run"), "--device", "cpu"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "run") == outcome(trained(2) / "run")
    assert done.stderr.count("model written to") == 1, "only one process prints"
