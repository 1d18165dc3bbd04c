"""Processes that train as one, and what came of it."""

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


def trainer_of_runs(children: Children, prepared: Path, shared: Path) -> Trained:
    """Trains with so many processes; or with some for the first stretch of a run and others for the next.

    Each once, whichever worker of the tests comes first: the others wait for it.
    """

    def trained(*ranks: int, **train: Any) -> Path:
        name = hashlib.sha256(f"{ranks} {train}".encode()).hexdigest()[:16]
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                train_in_stretches(children, config(prepared, **train), folder, ranks)
                done.touch()
        return folder

    return trained


def train_in_stretches(children: Children, config: RunConfig, folder: Path, ranks: tuple[int, ...]) -> None:
    begun = [str(write_run_file(folder / "run.toml", config)), "--out", str(folder / "run")]
    for number, size in enumerate(ranks, start=1):
        stop = ["--stop-at", str(STEPS * number // len(ranks))] if number < len(ranks) else []
        together(children, size, folder, [*begun, *stop])
        begun = ["--resume", str(folder / "run")]


def config(prepared: Path, **train: Any) -> RunConfig:
    # Some gradients are zero but for rounding (of a bias of keys, say), which Adam would blow up with a small epsilon.
    return run_config({"prepared": prepared}, {"accumulate": 2, "ema": 0.9, "epsilon": 1e-4, **train})


def together(children: Children, ranks: int, folder: Path, arguments: list[str]) -> list[Ended]:
    ended = started_together(children, ranks, folder, arguments, {})
    assert [each.code for each in ended] == [0] * ranks, ended
    return ended


def started_together(
    children: Children, ranks: int, folder: Path, arguments: list[str], faults: Mapping[int, Job]
) -> list[Ended]:
    """Several processes that train as one, each writing down which pairs it learns from."""
    command = ("attendo_command", {"arguments": ["train", *arguments]})
    jobs = [
        [("record_pairs", {"file": str(folder / f"pairs-{rank}.txt")}), *([faults[rank]] if rank in faults else [])]
        for rank in range(ranks)
    ]
    return at_once(children, [[*before, command] for before in jobs])


def at_once(children: Children, jobs: list[list[Job]]) -> list[Ended]:
    """A process for each list of jobs, all of them of one world."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
    world = {**address, "WORLD_SIZE": str(len(jobs))} if len(jobs) > 1 else {}
    started = [children.start(each, **world, RANK=str(rank)) for rank, each in enumerate(jobs)]
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


def told(folder: Path, kind: str, value: str) -> list[float]:
    return [line[value] for line in reports(folder / "run") if line["kind"] == kind]


def assert_same_network(one: Path, other: Path) -> None:
    """Sums over ranks round otherwise, so not to the last bit."""
    expected, found = snapshot(one), snapshot(other)
    for kind in ("step", "validation"):
        assert told(other, kind, "loss") == pytest.approx(told(one, kind, "loss"), abs=1e-6)
    assert told(other, "step", "norm") == pytest.approx(told(one, "step", "norm"), rel=1e-5)
    assert len(told(other, "step", "loss")) == STEPS
    for part in ("model", "optimizer"):
        left, right = getattr(expected, part), getattr(found, part)
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(right[name], left[name], atol=1e-6, rtol=1e-5)
    assert found.state["position"] == expected.state["position"]
    assert found.state["tokens"] == expected.state["tokens"]
