"""Measures resident memory while attendo prepares a large corpus and trains on it.

    python benchmarks/memory.py [--pairs 20000000] [--steps 2000] [--work runs/memory]

The memory must not grow with the corpus. The script writes synthetic pairs: words follow Zipf's law, and the target
words are a permutation of the source words. Then it runs `attendo prepare` and `attendo train` as a user does, and
reads the resident memory of each process while it runs.
"""

import argparse
import gzip
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

WORDS, BLOCK = 50_000, 500_000
SETTINGS = ("preset=tiny", "tokenizer.size=8000", "train.batch_tokens=1024", "train.validate_every=100000")


def main() -> None:
    arguments = _arguments()
    work = Path(arguments.work)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    source, target = work / "source.txt.gz", work / "target.txt.gz"
    begin = time.perf_counter()
    write_pairs(source, target, arguments.pairs)
    sizes = f"{source.stat().st_size / 2**20:,.0f} + {target.stat().st_size / 2**20:,.0f} MiB compressed"
    print(f"{arguments.pairs:,} pairs written in {time.perf_counter() - begin:.0f} s, {sizes}", flush=True)
    files = ["--source", str(source), "--target", str(target)]
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    report("prepare", ["prepare", *files, *changes, "--out", str(work / "data")])
    size = sum(path.stat().st_size for path in (work / "data").iterdir())
    print(f"prepared data: {size / 2**20:,.0f} MiB", flush=True)
    steps = ["--set", f"train.steps={arguments.steps}", "--set", f"data.prepared={work / 'data'}"]
    report("train", ["train", *changes, *steps, "--out", str(work / "run")])


def write_pairs(source: Path, target: Path, count: int) -> None:
    """Repeat a block of pairs until there are `count` pairs; each repetition appends another last word."""
    block = _block(min(BLOCK, count))
    with gzip.open(source, "wb", compresslevel=1) as left, gzip.open(target, "wb", compresslevel=1) as right:
        for begin in range(0, count, BLOCK):
            end = f" {_word(begin // BLOCK)}\n".encode()
            for file, lines in zip((left, right), block, strict=True):
                file.writelines(line + end for line in lines[: count - begin])


def _block(rows: int) -> tuple[list[bytes], list[bytes]]:
    generator = np.random.default_rng(1)
    words = np.array([_word(number) for number in range(WORDS)])
    lengths = generator.integers(3, 12, rows)
    ids = np.minimum(generator.zipf(1.3, int(lengths.sum())), WORDS) - 1
    sentences = np.split(ids, np.cumsum(lengths)[:-1])
    sources = [" ".join(words[row]).encode() for row in sentences]
    return sources, [" ".join(words[(row * 7919 + 13) % WORDS][::-1]).encode() for row in sentences]


def report(name: str, words: list[str]) -> None:
    """Run a command and print its peak of resident memory: in total, in the middle third and in the last third."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "attendo", *words], stdout=subprocess.DEVNULL)
    seen: list[int] = []
    watcher = threading.Thread(target=_watch, args=(process, seen))
    watcher.start()
    code = process.wait()
    watcher.join()
    minutes = (time.perf_counter() - begin) / 60
    third = len(seen) // 3
    middle, end = max(seen[third : 2 * third], default=0), max(seen[2 * third :], default=0)
    print(
        f"{name}: exit {code}, {minutes:.1f} min, resident memory at most {max(seen):,} MiB "
        f"(middle third {middle:,}, last third {end:,})",
        flush=True,
    )


def _watch(process: "subprocess.Popen[bytes]", seen: list[int]) -> None:
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return
        lines = [line for line in status.splitlines() if line.startswith("VmRSS")]
        if lines:
            seen.append(int(lines[0].split()[1]) // 1024)
        time.sleep(0.2)


def _word(number: int) -> str:
    """Return a word of two to four syllables, different for each number."""
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    word = ""
    number += len(syllables)
    while number:
        number, digit = divmod(number, len(syllables))
        word += syllables[digit]
    return word


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20_000_000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--work", default="runs/memory")
    return parser.parse_args()


if __name__ == "__main__":
    main()
