"""Measures the throughput of `attendo generate --input` with 1 and 2 workers of one thread each, in one run.

    python benchmarks/generate_corpus.py MODEL [--lines 60000] [--rounds 3] [--workers 1 2 ray] [--json FILE]

The corpus has sentences of the built-in task in one large and two small shards. The numbers of workers alternate; `ray`
has two actors of Ray. Each time is that of the whole command, start included. All outputs must have equal bytes.

On a machine with other work, the ratio of times says how much of the cores was free. The processor time of the command
does not depend on that: N workers on N free cores are N x (its time with one worker / its time with N) as fast at most.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median

from attendo.demo_task import BuiltinTask

SHARES = {"large.txt": 0.8, "small.jsonl": 0.1, "small.tsv": 0.1}


def main() -> None:
    given = _parse_arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_corpus(folder / "corpus", given.lines)
        seconds: dict[str, list[float]] = {workers: [] for workers in given.workers}
        processor: dict[str, list[float]] = {workers: [] for workers in given.workers}
        for _ in range(given.rounds):
            for workers in given.workers:
                times = measure(given.model, folder, workers)
                seconds[workers].append(times[0])
                processor[workers].append(times[1])
                load = os.getloadavg()[0]
                print(f"{workers} workers: {times[0]:.1f} s, processor {times[1]:.1f} s, load {load:.1f}", flush=True)
    first = given.workers[0]
    rows = []
    for workers, times in seconds.items():
        ratios = [one / each for one, each in zip(seconds[first], times, strict=True)]
        used = processor[workers]
        speed = given.lines / median(times)
        number = 2 if workers == "ray" else int(workers)
        bound = number * median(one / each for one, each in zip(processor[first], used, strict=True))
        ratio = median(ratios)
        rows.append({"workers": workers, "seconds": times, "processor": used, "ratio": ratio, "bound": bound})
        bound_text = (
            "" if workers == "ray" else f", at most {bound:.2f} by processor time"
        )  # Ray's are not our children
        print(f"{workers} workers: {median(times):.1f} s, {speed:,.0f} lines/s, ratio {ratio:.2f}{bound_text}")
    if given.json is not None:
        given.json.write_text(json.dumps({"lines": given.lines, "rows": rows}, indent=2) + "\n")


def write_corpus(folder: Path, lines: int) -> None:
    """Write the shards."""
    folder.mkdir()
    sources = (pair.source for pair in BuiltinTask(1).train())
    for name, share in SHARES.items():
        texts = list(islice(sources, int(lines * share)))
        rows = [json.dumps({"source": text}) if name.endswith(".jsonl") else text for text in texts]
        (folder / name).write_text("".join(f"{row}\n" for row in rows), "utf-8")


def measure(model: str, folder: Path, workers: str) -> tuple[float, float]:
    """Return the seconds and processor seconds of a call. Check that its outputs equal those of the first one."""
    out, first = folder / "out", folder / "first"
    words = ["generate", model, "--input", str(folder / "corpus"), "--output", str(out)]
    words += ["--ray", "--workers", "2"] if workers == "ray" else ["--workers", workers]
    start, before = time.perf_counter(), os.times()
    subprocess.run(
        [sys.executable, "-m", "attendo", *words],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    seconds, after = time.perf_counter() - start, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    if first.exists():
        names = sorted(path.name for path in first.iterdir())
        assert all((out / name).read_bytes() == (first / name).read_bytes() for name in names), "outputs differ"
        shutil.rmtree(out)
    else:
        out.rename(first)
    return seconds, processor


def _parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lines", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", nargs="+", default=["1", "2"])
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
