"""Measures how the time per token grows with the answer length, and how memory grows with the batch size.

    python benchmarks/decode_growth.py [--device cuda] [--preset base] [--what time] [--what memory]
    python benchmarks/decode_growth.py --device cuda --draw

The network has random weights, and every answer has a forced length. Greedy search and beam 4 run on the cached and on
the fast engine, without compilation. The fastest of several rounds is the result.
The script writes decode-growth-DEVICE.json and draws it as decode-time-DEVICE.svg and decode-memory-DEVICE.svg. A new
measurement replaces the old one of the same kind in the file; --draw measures nothing.
"""

import argparse
import ctypes
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from growth_pictures import draw

from attendo import Transformer
from attendo.bench.comparison import collect_environment, make_forced_workloads
from attendo.bench.random_network import make_random_network
from attendo.bench.systems import DTYPES, prepare_generation
from attendo.decode.engines import CachedEngine, Engine, FastEngine
from attendo.text_model import eval_mode

BEAMS = (1, 4)
ALL_AT_ONCE = 1 << 40  # positions: one batch
FOLDER = Path(__file__).parents[1] / "docs" / "images"

Row = dict[str, Any]


def main() -> None:
    given = _arguments()
    device = torch.device(given.device)
    path = given.output / f"decode-growth-{device.type}.json"
    known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if not given.draw:
        network = make_random_network(given.preset, given.vocabulary).to(device, DTYPES[given.precision])
        known["facts"] = {
            **collect_environment(device),
            **{
                name: getattr(given, name)
                for name in ("preset", "vocabulary", "source_length", "batch", "steps", "precision")
            },
        }
        with eval_mode(network):
            if "time" in given.what:
                known["time"] = list(times(network, given.lengths, given.batch, given.source_length, given.rounds))
            if "memory" in given.what:
                known["memory"] = list(memories(network, given.batches, given.steps, given.source_length))
        given.output.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    for picture in draw(known, given.output, device.type):
        print(picture)


def times(network: Transformer, lengths: Sequence[int], batch: int, source_length: int, rounds: int) -> Iterator[Row]:
    """All engines take turns in every round. On a CPU only the processor time of this process counts."""
    on_a_gpu = network.output.weight.is_cuda
    clock = time.perf_counter if on_a_gpu else time.process_time
    for steps in lengths:
        calls = {
            (name, beam): _call(engine, network, beam, batch, source_length, steps)
            for name, engine in _engines(network).items()
            for beam in BEAMS
        }
        for call in calls.values() if on_a_gpu else ():  # warm-up: the first call records CUDA graphs
            call()
        seconds: dict[tuple[str, int], list[float]] = {each: [] for each in calls}
        for _ in range(rounds):
            for each, call in calls.items():
                begin = clock()
                call()
                seconds[each].append(clock() - begin)
        for (name, beam), taken in seconds.items():
            microseconds = 1e6 * min(taken) / (batch * steps)
            print(f"{name:6} beam {beam}, {steps:4} steps: {microseconds:10,.1f} µs a token", flush=True)
            yield {"engine": name, "beam": beam, "steps": steps, "seconds": taken}


def memories(network: Transformer, batches: Sequence[int], steps: int, source_length: int) -> Iterator[Row]:
    """Peak memory while a batch is decoded, minus the memory before it, which holds the weights."""
    device = network.output.weight.device
    most = most_on_a_gpu if device.type == "cuda" else most_on_a_cpu
    for beam in BEAMS:
        for batch in batches:
            for name in _engines(network):
                taken = most(lambda: _call(_engines(network)[name], network, beam, batch, source_length, steps)())  # noqa: B023
                print(f"{name:6} beam {beam}, batch {batch:4}: {taken / 2**20:10,.1f} MiB", flush=True)
                yield {"engine": name, "beam": beam, "batch": batch, "bytes": taken}


def most_on_a_gpu(call: Callable[[], object]) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    return torch.cuda.max_memory_allocated() - before


def most_on_a_cpu(call: Callable[[], object]) -> int:
    """Measure with the peak of resident memory that Linux keeps, after resetting that peak."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    call()
    return _resident("VmHWM") - before


def _resident(kind: str) -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(kind))


def _engines(network: Transformer) -> dict[str, Engine]:
    return {"cached": CachedEngine(network, ALL_AT_ONCE), "fast": FastEngine(network, ALL_AT_ONCE)}


def _call(
    engine: Engine, network: Transformer, beam: int, batch: int, source_length: int, steps: int
) -> Callable[[], object]:
    (work,) = make_forced_workloads(network.config, source_length, steps, [beam], [batch])
    return prepare_generation(engine, work)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=DTYPES, default="fp32")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--what", choices=("time", "memory"), action="append")
    parser.add_argument("--draw", action="store_true", help="only draw the figures in the file")
    parser.add_argument("--lengths", type=_numbers, default="16,32,64,128,256,512")
    parser.add_argument("--batch", type=int, default=32, help="batch size of the time measurement")
    parser.add_argument("--batches", type=_numbers, default="1,2,4,8,16,32,64,128,256")
    parser.add_argument("--steps", type=int, default=32, help="answer length in tokens of the memory measurement")
    parser.add_argument("--source-length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=FOLDER)
    given = parser.parse_args()
    given.what = given.what or ["time", "memory"]
    return given


if __name__ == "__main__":
    main()
