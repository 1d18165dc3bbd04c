"""R9: however many processes train together and however many threads make batches, it is the same run."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Children, Ended, Job
from small_run import STEPS, Outcome, begin, outcome, reports, run_config, train_to_the_end, write_run_file

from attendo.recipes.run_config import RunConfig
from attendo.train.checkpoint import Checkpoints, Snapshot

Trained = Callable[..., Path]
HALF = STEPS // 2


@pytest.fixture(scope="module")
def trained(children: Children, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trains with so many processes, or with some up to the half and others from there on; each once."""
    known: dict[str, Path] = {}

    def train(ranks: int, then: int | None = None, **train: Any) -> Path:
        name = f"{ranks} {then} {train}"
        if name not in known:
            folder = tmp_path_factory.mktemp("ranks")
            run_file = write_run_file(folder / "run.toml", config(prepared, **train))
            stop = ["--stop-at", str(HALF)] if then else []
            together(children, ranks, folder, [str(run_file), "--out", str(folder / "run"), *stop])
            if then:
                together(children, then, folder, ["--resume", str(folder / "run")])
            known[name] = folder
        return known[name]

    return train


def config(prepared: Path, **train: Any) -> RunConfig:
    # Some gradients are zero but for rounding (of a bias of keys, say), which Adam would blow up with a small epsilon.
    return run_config({"prepared": prepared}, {"accumulate": 2, "ema": 0.9, "epsilon": 1e-4, **train})


def together(children: Children, ranks: int, folder: Path, arguments: list[str]) -> list[Ended]:
    ended = started_together(children, ranks, folder, arguments, {})
    assert [each.code for each in ended] == [0] * ranks, ended
    return ended


def started_together(
    children: Children, ranks: int, folder: Path, arguments: list[str], faults: dict[int, Job]
) -> list[Ended]:
    """Several processes that train as one, each writing down which pairs it learns from."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
    started = []
    for rank in range(ranks):
        environment = {**address, "RANK": str(rank), "WORLD_SIZE": str(ranks)} if ranks > 1 else {}
        before = [
            ("record_pairs", {"file": str(folder / f"pairs-{rank}.txt")}),
            *([faults[rank]] if rank in faults else []),
        ]
        started.append(children.start_attendo("train", *arguments, before=before, **environment))
    return [each.wait() for each in started]


def pairs(folder: Path) -> list[list[int]]:
    """Of every batch, the pairs of all ranks, as they lay in it."""
    ranks = [path.read_text().splitlines() for path in sorted(folder.glob("pairs-*.txt"))]
    whole = []
    for shares in zip_longest(*ranks, fillvalue="[]"):
        rows = zip_longest(*(json.loads(share) for share in shares))
        whole.append([number for row in rows for number in row if number is not None])
    return whole


def snapshot(folder: Path) -> Snapshot:
    return Checkpoints(folder / "run" / "checkpoints").load(STEPS)


def test_R9_two_processes_learn_from_the_same_pairs_in_the_same_order_as_one(trained: Trained) -> None:
    one, two = pairs(trained(1)), pairs(trained(2))
    assert one == two
    assert len(one) == 2 * STEPS


@pytest.mark.parametrize(("ranks", "then"), [(2, None), (2, 1), (1, 2)])
def test_R9_processes_that_come_and_go_train_the_same_network(trained: Trained, ranks: int, then: int | None) -> None:
    """Sums over ranks round otherwise, so not to the last bit."""
    expected, found = snapshot(trained(1)), snapshot(trained(ranks, then))
    losses = [
        [line["loss"] for line in reports(folder / "run") if line["kind"] == "step"]
        for folder in (trained(1), trained(ranks, then))
    ]
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
    assert len(losses[1]) == STEPS
    for part in ("model", "optimizer"):
        left, right = getattr(expected, part), getattr(found, part)
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(right[name], left[name], atol=1e-6, rtol=1e-5)
    assert found.state["position"] == expected.state["position"]
    assert found.state["tokens"] == expected.state["tokens"]


def test_R9_a_run_with_two_processes_stopped_and_resumed_is_the_same_to_the_last_bit(trained: Trained) -> None:
    whole, resumed = (outcome(trained(2, then) / "run") for then in (None, 2))
    assert whole == resumed


def test_R9_a_checkpoint_of_two_processes_holds_the_random_state_of_both(trained: Trained) -> None:
    random = snapshot(trained(2)).random
    assert {name.split("/")[0] for name in random} == {"rank0", "rank1"}


def test_R9_another_number_of_processes_is_told(children: Children, trained: Trained, tmp_path: Path) -> None:
    said = together(children, 1, tmp_path, ["--resume", str(trained(2, 2) / "run")])[0].errors
    assert "warning: world_size was 2 and is 1" in said


def test_R9_a_signal_to_one_process_stops_them_all_at_the_same_step_to_be_resumed(
    children: Children, prepared: Path, trained: Trained, tmp_path: Path
) -> None:
    run_file, run = write_run_file(tmp_path / "run.toml", config(prepared)), tmp_path / "run"
    disturbed = ("signal_at_batch", {"batch": 9, "numbers": [signal.SIGTERM]})
    leading, other = started_together(children, 2, tmp_path, [str(run_file), "--out", str(run)], {1: disturbed})
    assert (other.code, leading.code) == (143, 0)
    assert "stopped at step 5, saved" in leading.errors
    assert Checkpoints(run / "checkpoints").steps()[-1] == 5
    together(children, 2, tmp_path, ["--resume", str(run)])
    assert outcome(run) == outcome(trained(2) / "run")


def test_R10_a_gradient_that_is_no_number_on_one_process_is_skipped_by_all(
    children: Children, prepared: Path, tmp_path: Path
) -> None:
    run_file, run = write_run_file(tmp_path / "run.toml", config(prepared)), tmp_path / "run"
    spoiled = ("spoil_loss", {"batch": 9})
    ended = started_together(children, 2, tmp_path, [str(run_file), "--out", str(run)], {1: spoiled})
    assert [each.code for each in ended] == [0, 0], ended
    assert [line["step"] for line in reports(run) if line["kind"] == "step" and line["skipped"]] == [5]
    skipped = json.loads((run / "skipped.jsonl").read_text("utf-8"))
    assert skipped == {"step": 5, "pairs": [number for batch in pairs(tmp_path)[8:10] for number in batch]}


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("pieces", [False, True], ids=["words", "BPE-dropout"])
def test_R9_threads_that_make_batches_change_no_bit(
    prepared: Path, prepared_pieces: Path, tmp_path: Path, workers: int, pieces: bool
) -> None:
    def trained_with(number: int) -> Outcome:
        tokenizer = {"dropout": 0.2} if pieces else {}
        data = prepared_pieces if pieces else prepared
        settings = run_config({"prepared": data}, {"workers": number}, tokenizer=tokenizer, model={"dropout": 0.1})
        return outcome(train_to_the_end(begin(settings, tmp_path / f"{number}")).folder)

    assert trained_with(workers) == trained_with(0)


@pytest.mark.slow
def test_R9_torchrun_starts_processes_that_train_as_one(trained: Trained, prepared: Path, tmp_path: Path) -> None:
    run_file = write_run_file(tmp_path / "run.toml", config(prepared))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*torchrun, "-m", "attendo", "train", str(run_file), "--out", str(tmp_path / "run"), "--device", "cpu"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "run") == outcome(trained(2) / "run")
    assert done.stderr.count("model written to") == 1, "of several processes one speaks"
