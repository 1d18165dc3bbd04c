"""Simulates the throughput of `attendo generate --input` with up to 64 workers, and draws it.

    python benchmarks/scale_workers.py [--measured FILE] [--lines 10000000] [--out docs/images/scale-workers]

Measured here, by processor time: what a line costs in the command itself (counted, then merged with its output) and in
a worker besides its model (read, written as a part). Assumed, as options: the bandwidth and latency of the storage that
all workers share, and the seconds until a worker has its model. The speeds of the models are those of
docs/benchmarks.md.
`--measured` is the file of `benchmarks/generate_corpus.py --json`. The script writes OUT.json and OUT.svg.
"""

import argparse
import heapq
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.text_shards import ShardFields
from attendo.recipes.corpus_generation import WINDOW_LINES, CorpusGeneration, Window, WindowReader
from attendo.recipes.corpus_manifest import Counts

WORKERS = (1, 2, 4, 8, 16, 32, 64)
SHARD_WINDOWS = 489  # a million lines
TOKENS_PER_LINE, BYTES_PER_LINE = 24, 120  # a sentence and its output: about 24 tokens of each
# Tokens a second of one worker: docs/benchmarks.md, int8 in two threads (base, beam 4, batch 32, halved for one core)
# and GPU (base, beam 4, batch 256).
SPEEDS = {"CPU core": 744 / 2, "GPU": 329_071.0}
COLOURS = {"CPU core": "#0072b2", "GPU": "#d55e00"}


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time for a window."""

    count: float  # in the command, before the first window
    merge: float  # in the command, when a shard is complete
    read_and_write: float  # in a worker


def main() -> None:
    given = _parse_arguments()
    costs = measure_costs()
    print(costs)
    rows = []
    for name, speed in SPEEDS.items():
        for workers in WORKERS:
            seconds, busy = simulate(given, costs, speed, workers)
            tokens = given.lines * TOKENS_PER_LINE / seconds
            rows.append({"worker": name, "workers": workers, "seconds": seconds, "tokens_per_second": tokens, **busy})
    for row in rows:
        first = next(each for each in rows if each["worker"] == row["worker"])
        row["speedup"] = first["seconds"] / row["seconds"]
        print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    measured = json.loads(given.measured.read_text())["rows"] if given.measured else []
    found = {"lines": given.lines, "costs": vars(costs), "simulated": rows, "measured": measured}
    given.out.with_suffix(".json").write_text(json.dumps(found, indent=2) + "\n")
    draw(rows, measured, given.out.with_suffix(".svg"))


def measure_costs(lines: int = 20 * WINDOW_LINES) -> Costs:
    """Run the command's own code on a corpus whose outputs are known at once."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shard = folder / "in.txt"
        shard.write_text("".join(f"{number:08} {'word ' * 10}\n" for number in range(lines)))
        (folder / "out").mkdir()
        work = CorpusGeneration(folder / "out", [shard], ShardFields(), {})
        begin = time.process_time()
        for _ in work.begin():
            pass
        count = time.process_time() - begin
        reader, of_workers = WindowReader(work.shards, work.fields), 0.0

        def compute(windows: Iterator[Window]) -> Iterator[tuple[Window, Counts]]:
            nonlocal of_workers
            for window in windows:
                begin = time.process_time()
                texts = reader.read(window)
                work.write_part(window, ([text] for text in texts), Counts(len(texts)))
                of_workers += time.process_time() - begin
                yield window, Counts(len(texts))

        begin = time.process_time()
        for _ in work.run(compute):
            pass
        merge = time.process_time() - begin - of_workers
    windows = lines / WINDOW_LINES
    return Costs(count / windows, merge / windows, of_workers / windows)


def simulate(given: argparse.Namespace, costs: Costs, speed: float, workers: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of a call, and the shares of the time in which the command and the storage are busy.

    Workers take windows from one queue. Storage serves one transfer at a time. The command merges a complete shard
    while the workers go on.
    """
    windows = -(-given.lines // WINDOW_LINES)
    compute = WINDOW_LINES * TOKENS_PER_LINE / speed + costs.read_and_write
    transfer = WINDOW_LINES * BYTES_PER_LINE / (given.bandwidth * 1e6)  # a source and a part of half the size each
    counted = windows * (costs.count + transfer / 2)
    free = [(counted + given.start, number) for number in range(workers)]
    storage, command, busy_storage = counted, counted, 0.0
    left = {shard: min(SHARD_WINDOWS, windows - shard * SHARD_WINDOWS) for shard in range(-(-windows // SHARD_WINDOWS))}
    end = counted
    for number in range(windows):
        now, worker = heapq.heappop(free)
        storage = max(storage, now) + transfer  # its source and its part
        busy_storage += transfer
        done = max(now + given.latency + compute, storage)
        heapq.heappush(free, (done, worker))
        shard = number // SHARD_WINDOWS
        left[shard] -= 1
        if not left[shard]:
            size = min(SHARD_WINDOWS, windows - shard * SHARD_WINDOWS)
            command = max(command, done) + size * (costs.merge + transfer)
            end = max(end, command)
        end = max(end, done)
    own = counted + windows * (costs.merge + transfer)
    return end, {"command_busy": own / end, "storage_busy": (busy_storage + counted) / end}


def draw(rows: list[dict[str, Any]], measured: list[dict[str, Any]], path: Path) -> None:
    """Draw the speedup over the number of workers, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "attendo", "font.size": 10})
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    axes.plot(WORKERS, WORKERS, color="#999999", linestyle=":", label="N workers, N times as fast")
    for name in SPEEDS:
        line = [row for row in rows if row["worker"] == name]
        label = f"simulated, one worker a {name}: {line[-1]['tokens_per_second']:,.0f} tokens/s with {WORKERS[-1]}"
        axes.plot(WORKERS, [row["speedup"] for row in line], marker="o", color=COLOURS[name], label=label)
    points = [(int(row["workers"]), row["bound"]) for row in measured if row["workers"] != "ray"]
    if points:
        axes.plot(
            *zip(*points, strict=True), "k+", markersize=12, markeredgewidth=2, label="measured, by processor time"
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(WORKERS, labels=map(str, WORKERS))
    axes.set_xlabel("workers")
    axes.set_ylabel("throughput / throughput of one worker")
    axes.legend(frameon=False, loc="upper left")
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--bandwidth", type=float, default=500.0, help="MB a second of the storage, for all together")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds to open and close the files of a window")
    parser.add_argument("--start", type=float, default=20.0, help="seconds until a worker has its model")
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images/scale-workers"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
