"""Compares the int8 speed of attendo with ONNX Runtime to that of CTranslate2.

    python benchmarks/onnx_speed.py --threads 2 --rounds 5

CTranslate2 runs twice: all threads share a batch, or each thread has a separate batch. The results are tokens a second,
encoder included; every answer is forced to 24 tokens. If other processes use the same cores, trust the processor time
with one thread, because it excludes the wait for a core.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from attendo.bench.comparison import make_forced_workloads
from attendo.bench.random_network import make_random_network
from attendo.bench.systems import CTranslate2Runner, prepare_generation
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.quantization import activation_ranges, random_examples
from attendo.interop.onnx.session import OnnxNetwork

_SOURCE, _STEPS, _ALL_AT_ONCE = 20, 24, 1 << 40


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    network = make_random_network(options.preset, options.vocabulary)
    onnx = OnnxNetwork.from_network(network, activation_ranges(network, random_examples(network)), options.threads)
    print("beam batch  system                   tokens/s  attendo is   by processor time  attendo is")
    with TemporaryDirectory() as folder:
        cpu = torch.device("cpu")
        rivals = [CTranslate2Runner(network, "int8", cpu, 64, Path(folder, str(n)), dealt=bool(n)) for n in (0, 1)]
        for work in make_forced_workloads(network.config, _SOURCE, _STEPS, options.beams, options.batches):
            calls = [prepare_generation(OnnxEngine(onnx, _ALL_AT_ONCE), work), *(each.prepare(work) for each in rivals)]
            taken = _medians(calls, options.rounds)
            for name, (clock, processor) in zip(["attendo", *(each.name for each in rivals)], taken, strict=True):
                speeds = [work.batch * _STEPS / each for each in (clock, processor)]
                ratios = [clock / taken[0][0], processor / taken[0][1]]
                print(
                    f"{work.beam:4} {work.batch:5}  {name:23} {speeds[0]:9,.0f}  {ratios[0]:8.2f} x  "
                    f"{speeds[1]:18,.0f}  {ratios[1]:8.2f} x",
                    flush=True,
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 1])
    return parser.parse_args()


def _medians(calls: list[Callable[[], Any]], rounds: int) -> list[tuple[float, float]]:
    """Return the median wall-clock and processor seconds of each call; the calls take turns."""
    for call in calls:
        call()
    seconds: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, taken in zip(calls, seconds, strict=True):
            begin, before = time.perf_counter(), time.process_time()
            call()
            taken.append((time.perf_counter() - begin, time.process_time() - before))
    return [(statistics.median(a for a, _ in each), statistics.median(b for _, b in each)) for each in seconds]


if __name__ == "__main__":
    main()
