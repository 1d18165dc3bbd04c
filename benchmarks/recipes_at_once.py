"""Trains several recipes on one GPU at once, because one small network leaves most of the GPU idle.

    python benchmarks/recipes_at_once.py g2p:1,2,3 cogs:1,2 scan_simple:1,2 --data data --out runs/all --at-once 13

Recipes start in the given order, each as soon as its seeds fit below the limit of `--at-once`. The last line names the
recipes that failed. A second run of the same command keeps finished work. Scores are in OUT/RECIPE/results.json, and
the printed output is in OUT/RECIPE.log.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Job:
    """A recipe with some of its seeds."""

    recipe: str
    seeds: str
    process: subprocess.Popen[bytes] | None = None
    began: float = field(default=0.0)

    @property
    def trainings(self) -> int:
        """Number of training processes: one per seed."""
        return len(self.seeds.split(","))

    @property
    def name(self) -> str:
        """Name of the output folder, without the path of the recipe."""
        return Path(self.recipe).stem

    def begin(self, data: Path, out: Path) -> None:
        """Start `attendo reproduce` with its output in a log file."""
        command = [sys.executable, "-m", "attendo", "reproduce", self.recipe, "--data", str(data)]
        command += ["--out", str(out / self.name), "--seeds", self.seeds, "--jobs", str(self.trainings)]
        self.began = time.monotonic()
        with (out / f"{self.name}.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def run(jobs: list[Job], data: Path, out: Path, at_once: int) -> list[str]:
    """Run all jobs and return the names of the recipes that failed."""
    out.mkdir(parents=True, exist_ok=True)
    waiting, running, failed = list(jobs), list[Job](), list[str]()
    while waiting or running:
        busy = sum(job.trainings for job in running)
        if waiting and (not running or busy + waiting[0].trainings <= at_once):
            job = waiting.pop(0)
            job.begin(data, out)
            running.append(job)
            print(f"{job.name}: seeds {job.seeds} begun", flush=True)
            continue
        time.sleep(1)
        for job in [each for each in running if each.process and each.process.poll() is not None]:
            running.remove(job)
            code = job.process.returncode if job.process else None
            print(f"{job.name}: exit code {code} after {time.monotonic() - job.began:.0f} s", flush=True)
            if code:
                failed.append(job.name)
    return failed


def main() -> None:
    """Parse the command line and run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", metavar="RECIPE:SEEDS", help="recipe and its seeds, for example cogs:1,2")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("runs/all"))
    parser.add_argument("--at-once", type=int, default=13, help="maximum number of training processes")
    arguments = parser.parse_args()
    jobs = [Job(*each.rsplit(":", 1)) if ":" in each else Job(each, "1") for each in arguments.jobs]
    if failed := run(jobs, arguments.data, arguments.out, arguments.at_once):
        sys.exit(f"failed recipes: {', '.join(failed)}")


if __name__ == "__main__":
    main()
