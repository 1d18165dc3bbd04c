"""Trains several recipes on one GPU at once, because one small network leaves most of the GPU idle.

    python benchmarks/recipes_at_once.py g2p:1,2,3 cogs:1,2 scan_simple:1,2 --data data --out runs/all --at-once 13

Recipes start in the given order, each as soon as its seeds fit below the limit of `--at-once`. A recipe that starts
from the models of another recipe of the command waits for it and uses its models (`[reproduce] start_recipe`). The last
line names the recipes that failed. A second run of the same command keeps finished work and goes on with the rest;
`--minutes` stops a run early. Scores are in OUT/RECIPE/results.json, and the printed output is in OUT/RECIPE.log.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attendo.errors import AttendoError
from attendo.recipes.recipe import find_recipe

_NOT_AS_EXPECTED = 1  # exit code of `attendo reproduce` if a score is worse than expected: the run is complete


@dataclass
class Job:
    """A recipe with some of its seeds."""

    recipe: str
    seeds: str
    start: str | None = None  # name of the job whose models it starts from
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Job":
        recipe, colon, seeds = text.rpartition(":")
        return cls(recipe, seeds) if colon else cls(text, "1")

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
        folder = out / self.name
        if self.start is not None and not (folder / "start").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "start").symlink_to(Path("..") / self.start, target_is_directory=True)
        command = [sys.executable, "-m", "attendo", "reproduce", self.recipe, "--data", str(data)]
        command += ["--out", str(folder), "--seeds", self.seeds, "--jobs", str(max(2, self.trainings))]
        self.began = time.monotonic()
        with (out / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def link_starts(jobs: Sequence[Job]) -> None:
    """Find the jobs whose models other jobs start from."""
    seeds = {job.name: {*job.seeds.split(",")} for job in jobs}
    for job in jobs:
        start = find_recipe(job.recipe).criteria.start_recipe
        if start in seeds and {*job.seeds.split(",")} <= seeds[start]:
            job.start = start


def run(jobs: Sequence[Job], data: Path, out: Path, at_once: int, seconds: float) -> tuple[list[str], list[str]]:
    """Run the jobs. Return the names of those that failed, and of those that are not finished after `seconds`."""
    out.mkdir(parents=True, exist_ok=True)
    deadline, waiting, running, failed = time.monotonic() + seconds, list(jobs), list[Job](), list[str]()
    while waiting or running:
        if time.monotonic() > deadline:
            _stop(running)
            return failed, [job.name for job in (*running, *waiting)]
        for job in [each for each in running if each.process and each.process.poll() is not None]:
            running.remove(job)
            code = job.process.returncode if job.process else None
            print(f"{job.name}: exit code {code} after {time.monotonic() - job.began:.0f} s", flush=True)
            if code not in (0, _NOT_AS_EXPECTED):
                failed.append(job.name)
        busy = sum(job.trainings for job in running)
        ready = [job for job in waiting if job.start not in {each.name for each in (*waiting, *running)}]
        if ready and (not running or busy + ready[0].trainings <= at_once):
            waiting.remove(ready[0])
            if ready[0].start in failed:
                failed.append(ready[0].name)
                continue
            ready[0].begin(data, out)
            running.append(ready[0])
            print(f"{ready[0].name}: seeds {ready[0].seeds} begun", flush=True)
            continue
        time.sleep(0.5)
    return failed, []


def _stop(running: Sequence[Job]) -> None:
    """Stop the jobs. Their trainings save first."""
    for job in running:
        if job.process is not None:
            job.process.send_signal(signal.SIGTERM)
    for job in running:
        if job.process is not None:
            job.process.wait()


def main() -> None:
    """Parse the command line and run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", metavar="RECIPE:SEEDS", help="recipe and its seeds, for example cogs:1,2")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("runs/all"))
    parser.add_argument("--at-once", type=int, default=13, help="maximum number of training processes")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after this time; trainings save first"
    )
    arguments = parser.parse_args()
    jobs = [Job.parse(each) for each in arguments.jobs]
    try:
        link_starts(jobs)
    except AttendoError as error:
        sys.exit(str(error))
    failed, unfinished = run(jobs, arguments.data, arguments.out, arguments.at_once, 60 * arguments.minutes)
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}; the same command goes on from here", flush=True)
    if failed:
        sys.exit(f"failed recipes: {', '.join(failed)}")


if __name__ == "__main__":
    main()
