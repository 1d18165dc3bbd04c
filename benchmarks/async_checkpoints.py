"""Measures for how long a checkpoint stops training, written in the training thread and in a thread of its own.

    python benchmarks/async_checkpoints.py [--preset base] [--rows 256] [--length 32] [--saves 5] [--json FILE]

Both ways alternate in one process. `copy` is the time for which a save with a thread stops training, `slowdown` the
additional time of the steps beside the writing thread. Medians over the saves without the first, which allocates.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from attendo.doctor.memory import TrainingBatchShape
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.text_model import pick_device
from attendo.train.checkpoint import Checkpoints, Snapshot, TrainState, take_snapshot
from attendo.train.checkpoint_writer import CheckpointWriter
from attendo.train.config import TrainConfig
from attendo.train.update import Updater


def main() -> None:
    given = _parse_arguments()
    device = pick_device("auto")
    network = make_network(ModelConfig.preset(given.preset, vocab_size=32_000), torch.Generator().manual_seed(0))
    updater = Updater(network.to(device), TrainConfig(compile="off", steps=10**6))
    batch = TrainingBatchShape(given.rows, given.length, given.length).make_batch()

    def step() -> float:
        begin = time.perf_counter()
        updater.update([batch])
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    for _ in range(5):
        step()
    rows, writer = [], CheckpointWriter()  # one for all saves: it keeps its host memory
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.saves + 1):
            rows.append(measure(updater, step, Checkpoints(Path(folder)), writer, number))
            print(json.dumps(rows[-1]), flush=True)
    found = {name: median(row[name] for row in rows[1:]) for name in rows[0]}
    steps = {f"{name}_in_steps": found[name] / found["step"] for name in ("sync", "copy", "slowdown")}
    parameters = sum(each.numel() for each in network.parameters())
    result = {"parameters": parameters, **found, **steps, "first_copy": rows[0]["copy"]}
    print(json.dumps(result))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(
    updater: Updater, step: Callable[[], float], checkpoints: Checkpoints, writer: CheckpointWriter, number: int
) -> dict[str, float]:
    """Return seconds: of a step, of a save without a thread, of the copy for a thread, and of the writing thread."""
    quiet = [step() for _ in range(20)]
    begin = time.perf_counter()
    checkpoints.save(_snapshot(updater, 2 * number))
    sync = time.perf_counter() - begin
    begin = time.perf_counter()
    writer.start(_snapshot(updater, 2 * number + 1), checkpoints.save)
    copy = time.perf_counter() - begin
    beside = []
    while not writer.is_done:
        beside.append(step())
    writing = time.perf_counter() - begin
    writer.fetch()
    checkpoints.prune(1, None)
    usual = median(quiet)
    return {
        "step": usual,
        "sync": sync,
        "copy": copy,
        "writing": writing,
        "slowdown": sum(beside) - len(beside) * usual,
        "steps_beside": len(beside),
    }


def _snapshot(updater: Updater, number: int) -> Snapshot:
    found = take_snapshot(updater, TrainState(), {})
    return Snapshot(number, found.model, found.optimizer, found.random, found.state, {})


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
