"""Runs with several processes, and their results."""

import fcntl
import hashlib
import json
import shutil
import socket
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Children, Ended, Job
from small_run import STEPS, reports, run_config, write_run_file

from attendo.runs.config import RunConfig
from attendo.train.checkpoint import Checkpoints, Snapshot

Trained = Callable[..., Path]


def make_trainer(children: Children, prepared: Path, shared: Path) -> Trained:
    """A function that trains a run with one or several numbers of processes, one number per segment of the run.

    Each run is trained once. The first pytest worker trains it, and the others wait for it.
    """

    def train_once(*ranks: int, **train: Any) -> Path:
        name = hashlib.sha256(f"{ranks} {train}".encode()).hexdigest()[:16]
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                train_in_segments(children, config(prepared, **train), folder, ranks)
                done.touch()
        return folder

    return train_once


def train_in_segments(children: Children, config: RunConfig, folder: Path, ranks: tuple[int, ...]) -> None:
    start_arguments = [str(write_run_file(folder / "run.toml", config)), "--out", str(folder / "run")]
    for number, size in enumerate(ranks, start=1):
        stop = ["--stop-at", str(STEPS * number // len(ranks))] if number < len(ranks) else []
        train_with_ranks(children, size, folder, [*start_arguments, *stop])
        start_arguments = ["--resume", str(folder / "run")]


def config(prepared: Path, **train: Any) -> RunConfig:
    # Some gradients, such as that of the key bias, are zero up to rounding. A small epsilon of Adam would amplify them.
    return run_config({"prepared": prepared}, {"accumulate": 2, "ema": 0.9, "epsilon": 1e-4, **train})


def train_with_ranks(children: Children, ranks: int, folder: Path, arguments: list[str]) -> list[Ended]:
    ended = start_ranks(children, ranks, folder, arguments, {})
    assert [each.code for each in ended] == [0] * ranks, ended
    return ended


def start_ranks(
    children: Children, ranks: int, folder: Path, arguments: list[str], faults: Mapping[int, Job]
) -> list[Ended]:
    """Start the processes of a distributed run. Each records the pairs that it trains on."""
    command = ("attendo_command", {"arguments": ["train", *arguments]})
    jobs = [
        [("record_pairs", {"file": str(folder / f"pairs-{rank}.txt")}), *([faults[rank]] if rank in faults else [])]
        for rank in range(ranks)
    ]
    return run_world(children, [[*before, command] for before in jobs])


def run_world(children: Children, jobs: list[list[Job]]) -> list[Ended]:
    """Start one process per list of jobs, all in the same world."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
    world = {**address, "WORLD_SIZE": str(len(jobs))} if len(jobs) > 1 else {}
    started = [children.start(each, **world, RANK=str(rank)) for rank, each in enumerate(jobs)]
    return [each.wait() for each in started]


def pairs(folder: Path) -> list[list[int]]:
    """The pairs of every batch, merged from all ranks in their original order."""
    ranks = [path.read_text().splitlines() for path in sorted(folder.glob("pairs-*.txt"))]
    batches = []
    for shares in zip_longest(*ranks, fillvalue="[]"):
        rows = zip_longest(*(json.loads(share) for share in shares))
        batches.append([number for row in rows for number in row if number is not None])
    return batches


def snapshot(folder: Path) -> Snapshot:
    return Checkpoints(folder / "run" / "checkpoints").load(STEPS)


def reported_values(folder: Path, kind: str, value: str) -> list[float]:
    return [line[value] for line in reports(folder / "run") if line["kind"] == kind]


def assert_same_network(one: Path, other: Path) -> None:
    """The networks agree up to rounding, because sums over ranks are rounded differently."""
    expected, found = snapshot(one), snapshot(other)
    for kind in ("step", "validation"):
        assert reported_values(other, kind, "loss") == pytest.approx(reported_values(one, kind, "loss"), abs=1e-6)
    assert reported_values(other, "step", "norm") == pytest.approx(reported_values(one, "step", "norm"), rel=1e-5)
    assert len(reported_values(other, "step", "loss")) == STEPS
    for part in ("model", "optimizer"):
        left, right = getattr(expected, part), getattr(found, part)
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(right[name], left[name], atol=1e-6, rtol=1e-5)
    assert found.state["position"] == expected.state["position"]
    assert found.state["tokens"] == expected.state["tokens"]
