"""Trains an encoder-decoder of 3 billion parameters for some updates, and compares its memory with the estimate.

    python benchmarks/large_model.py [--layers 24] [--d-model 2048] [--rows 128] [--length 64] [--only NAME ...]

Every placement of the weights runs in a process of its own, with random sentences, in bf16 on a GPU. `--dry` only
prints the estimates of `attendo doctor`, for 1, 8 and 16 processes, without allocating the network.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from attendo.doctor.memory import TrainingBatchShape, format_bytes
from attendo.doctor.process_memory import ProcessMemory
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.text_model import pick_device
from attendo.train.checkpoint import TrainState, take_snapshot
from attendo.train.checkpoint_writer import CheckpointWriter
from attendo.train.config import TrainConfig
from attendo.train.update import Updater

PLACEMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpointed": {"activation_checkpointing": True},
    "offloaded": {"sharding": "full", "cpu_offload": True},
    "both": {"sharding": "full", "cpu_offload": True, "activation_checkpointing": True},
}


def main() -> None:
    given = _parse_arguments()
    if given.dry:
        print_estimates(given)
        return
    rows = []
    for name in given.only:
        command = [sys.executable, __file__, "--run", name, *_repeat_sizes(given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        rows.append(json.loads(lines[-1]) if lines else {"placement": name, "error": done.stderr[-600:]})
        print(json.dumps(rows[-1]), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


def print_estimates(given: argparse.Namespace) -> None:
    shape = TrainingBatchShape(given.rows, given.length, given.length)
    for processes in (1, 8, 16):
        for name, placement in PLACEMENTS.items():
            sharded = placement if processes == 1 else {**placement, "sharding": "full"}
            found = ProcessMemory(_make_config(given), TrainConfig(precision="bf16", **sharded), shape, processes)
            print(
                f"{processes:>3} processes, {name:12} {format_bytes(found.total):>8} on the GPU "
                f"({format_bytes(found.weights)} weights, {format_bytes(found.activations)} activations), "
                f"{format_bytes(found.host)} of the host",
                flush=True,
            )


def run(given: argparse.Namespace) -> None:
    """Train, and print one line of JSON."""
    device = pick_device("auto")
    on_gpu = device.type == "cuda"
    precision = "bf16" if on_gpu else "fp32"
    train = TrainConfig(compile="off", capture="off", warmup=2, precision=precision, **PLACEMENTS[given.run])
    shape = TrainingBatchShape(given.rows, given.length, given.length)
    estimate = ProcessMemory(_make_config(given), train, shape, 1)
    with torch.device(device):
        network = make_network(_make_config(given))
    network.to(device)
    updater = Updater(network, train)
    batch = shape.make_batch()
    updater.update([batch])
    _synchronise(on_gpu)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds, losses = [], []
    for _ in range(given.steps):
        begin = time.perf_counter()
        update = updater.update([batch])
        losses.append(float(update.loss) / update.tokens)
        _synchronise(on_gpu)
        seconds.append(time.perf_counter() - begin)
    found: dict[str, Any] = {
        "placement": given.run,
        "parameters": sum(each.numel() for each in network.parameters()),
        "estimate": estimate.total,
        "estimate_host": estimate.host,
        "measured": torch.cuda.max_memory_allocated() if on_gpu else None,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "step_seconds": median(seconds),
        "target_tokens_per_second": round(batch.tokens / median(seconds)),
        "losses": [round(each, 4) for each in losses],
    }
    if given.copy:
        found["copy_seconds"] = measure_copies(updater)
    print(json.dumps(found), flush=True)


def measure_copies(updater: Updater) -> list[float]:
    """Return the seconds for which three asynchronous saves stop training, without writing."""
    writer, seconds = CheckpointWriter(), []
    for _ in range(3):
        begin = time.perf_counter()
        writer.start(take_snapshot(updater, TrainState(), {}), lambda snapshot: Path())
        seconds.append(time.perf_counter() - begin)
        writer.fetch()
    return seconds


def _synchronise(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def _make_config(given: argparse.Namespace) -> ModelConfig:
    return ModelConfig(
        vocab_size=32_000,
        d_model=given.d_model,
        num_heads=given.d_model // 128 or 1,
        d_ff=4 * given.d_model,
        num_encoder_layers=given.layers,
        num_decoder_layers=given.layers,
    )


def _repeat_sizes(given: argparse.Namespace) -> list[str]:
    names = ("layers", "d_model", "rows", "length", "steps")
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    return [*words, *(["--copy"] if given.copy else [])]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24, help="of the encoder, and of the decoder")
    parser.add_argument("--d-model", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--length", type=int, default=64, help="positions of a side")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PLACEMENTS, default=list(PLACEMENTS))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--copy", action="store_true", help="also time the copy of an asynchronous checkpoint")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", choices=PLACEMENTS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _parse_arguments()
    if arguments.run is not None:
        run(arguments)
    else:
        main()
