"""`attendo reproduce`: train a recipe, score it, and say whether it came out as expected."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.interrupt import interruptible
from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.recipes.reproduce.jobs import Job
    from attendo.recipes.reproduce.recipe import Planned, Recipe
    from attendo.recipes.run_config import RunConfig


def reproduce(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="Name of a recipe (--list has them), or path of a run file.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of its files, or the one that holds it; data unless given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for its runs; runs/reproduce/RECIPE unless given.")] = None,
    seeds: Annotated[str, typer.Option(metavar="1,2", help="Other seeds than the recipe's own.")] = "",
    variants: Annotated[str, typer.Option(metavar="A,B", help="Some of its variants only; nothing is judged.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Trainings at once, each a process with a log file.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    show: Annotated[bool, typer.Option("--list", help="Print all recipes with their numbers, and stop.")] = False,
) -> None:
    """Train a recipe, score it on its tests, and compare with the numbers it should reach.

    A run that is complete is taken as it is, an interrupted one goes on. Exit code 0: as expected, 1: worse.
    """
    if show:
        if recipe is not None:
            raise UsageError(f"--list prints all recipes: give it without {recipe}")
        _list()
        return
    if recipe is None:
        raise UsageError("name a recipe, or see them all with --list")
    chosen = _chosen(recipe, seeds, variants)
    folder = chosen.data_folder(data)
    chosen.check_files(folder)
    place = out or Path("runs") / "reproduce" / chosen.name
    runs = chosen.plan(place)
    _train(chosen, runs, folder, device, jobs)
    if not _judge(chosen, runs, folder, device, place):
        raise typer.Exit(1)


def _list() -> None:
    from attendo.cli.reproduce_table import listing
    from attendo.recipes.reproduce.recipe import read_recipe, recipe_paths

    print("\n".join(listing([read_recipe(path) for path in recipe_paths().values()])))


def _chosen(name: str, seeds: str, variants: str) -> "Recipe":
    """With scores that can be computed here, which is asked before the long work."""
    from attendo.metrics import METRICS, check_metric
    from attendo.recipes.reproduce.recipe import find_recipe

    numbers = [each.strip() for each in seeds.split(",") if each.strip()]
    if wrong := [each for each in numbers if not each.isdecimal()]:
        raise UsageError(f"--seeds {wrong[0]}: give whole numbers, such as 1,2")
    names = [each.strip() for each in variants.split(",") if each.strip()]
    recipe = find_recipe(name).choose(tuple(dict.fromkeys(map(int, numbers))), tuple(dict.fromkeys(names)))
    for test in recipe.judged.test:
        if test.metric in METRICS:
            check_metric(test.metric)
    return recipe


def _train(recipe: "Recipe", runs: "Sequence[Planned]", folder: Path | None, device: str, at_once: int) -> None:
    """Those that are not complete yet."""
    from attendo.recipes.reproduce.runs import state_of

    left: list[tuple[Planned, RunConfig, bool]] = []
    for run in runs:
        config = _config(recipe, run, folder)
        state = state_of(run.folder, config)
        if state == "complete":
            _say(f"{run.name}: complete, in {run.folder}")
        else:
            left.append((run, config, state == "begun"))
    if at_once > 1:
        _train_at_once([_job(recipe, run, folder, device, begun) for run, _, begun in left], at_once)
        return
    for number, (run, config, begun) in enumerate(left, start=1):
        _say(f"{run.name}: training {number} of {len(left)}, in {run.folder}")
        _train_one(run, config, device, begun)


def _config(recipe: "Recipe", run: "Planned", folder: Path | None) -> "RunConfig":
    """As `attendo train` would have it."""
    from attendo.cli.train import new_config

    return new_config(recipe.path, {"source": None, "target": None, "folder": folder}, run.changes)


def _train_one(run: "Planned", config: "RunConfig", device: str, begun: bool) -> None:
    from attendo.cli.training import follow
    from attendo.recipes.run import Run
    from attendo.text_model import pick_device

    own = pick_device(device)
    done = follow(Run.resume(run.folder, own) if begun else Run.begin(config, run.folder, own))
    if done.stopped:
        _say("the same command goes on from here")
        raise typer.Exit(done.exit_code)


def _job(recipe: "Recipe", run: "Planned", folder: Path | None, device: str, begun: bool) -> "Job":
    from attendo.recipes.reproduce.jobs import Job

    if begun:
        words = ["train", "--resume", str(run.folder)]
    else:
        words = ["train", str(recipe.path), "--out", str(run.folder)]
        words += [] if folder is None else ["--data", str(folder)]
        words += [word for change in run.changes for word in ("--set", change)]
    log = run.folder.with_name(f"{run.folder.name}.log")
    return Job(run.name, [*words, "--device", device], log)


def _train_at_once(jobs: "Sequence[Job]", at_once: int) -> None:
    from attendo.recipes.reproduce.jobs import Ended, Started, run_jobs

    done = 0
    with interruptible() as interrupt, closing(run_jobs(jobs, at_once)) as reports:
        for report in reports:
            if isinstance(report, Started):
                _say(f"{report.job.name}: training, told in {report.job.log}")
            elif isinstance(report, Ended):
                done += 1
                _say(f"{report.job.name}: done after {report.seconds:,.0f} s, {done} of {len(jobs)}")
            elif interrupt:
                _say("stopping: the trainings save, and the same command goes on from there")
                break
    if interrupt:
        raise typer.Exit(interrupt.exit_code)


def _judge(recipe: "Recipe", runs: "Sequence[Planned]", folder: Path | None, device: str, place: Path) -> bool:
    """Whether nothing is worse than expected."""
    from attendo.cli.reproduce_table import table
    from attendo.recipes.bench import facts
    from attendo.recipes.reproduce.outcome import outcome_of, write_results
    from attendo.recipes.reproduce.scoring import Cut, Scoring, score_tests
    from attendo.text_model import pick_device

    begun, found = time.monotonic(), []
    for report in score_tests(recipe, runs, folder, device):
        match report:
            case Scoring():
                _say(f"scoring {report.test}: {report.of}")
            case Cut():
                _say(
                    f"{report.of}: {report.cut} of {report.lines} answers to {report.test} were cut at the length limit"
                )
            case _:
                found.append(report)
    outcome = outcome_of(recipe, runs, found)
    path = write_results(outcome, place, facts(pick_device(device)), time.monotonic() - begun)
    print("\n".join(table(outcome)))
    _say(f"written to {path}")
    return outcome.passed is not False


def _say(line: str) -> None:
    print(line, file=sys.stderr)
