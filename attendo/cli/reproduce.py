"""The `attendo reproduce` command: trains a recipe, scores it and compares it with the expected scores."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.language import say, translate
from attendo.cli.options import Device
from attendo.cli.output import align_columns, print_stderr
from attendo.errors import UsageError

if TYPE_CHECKING:
    import torch

    from attendo.recipes.jobs import TrainingJob
    from attendo.recipes.recipe import PlannedRun, Recipe
    from attendo.recipes.results import RecipeOutcome, RecipeTestResult
    from attendo.runs.config import RunConfig
    from attendo.runs.recipe_config import Expectation
    from attendo.runs.run import Run

_VERDICTS = {True: "pass", False: "fail", None: "not judged"}
_LIST_WIDTH = 100  # columns of the recipe list
# Text columns.
_LEFT_ALIGNED = ("recipe", "test", "score", "variant", "part", "expected", "published", "verdict", "data")


def reproduce(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="Name of a recipe (see --list), or path of a run file.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the recipe's files, or its parent folder; default: data.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs; default: runs/reproduce/RECIPE.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="1,2", help="Seeds to use instead of the recipe's own.")] = None,
    variants: Annotated[
        str | None, typer.Option(metavar="A,B", help="Run only these variants, without a verdict.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Parallel trainings, each in a process with a log file.")] = 1,
    device: Device = "auto",
    show: Annotated[bool, typer.Option("--list", help="Print all recipes with their scores, then exit.")] = False,
) -> None:
    """Train a recipe, score it on its tests, and compare with the expected scores.

    Complete runs are reused and interrupted runs are resumed. Exit code 0: as expected, 1: worse.
    """
    if show:
        if recipe is not None:
            raise UsageError("list_with_recipe", recipe=recipe)
        from attendo.recipes.recipe import list_recipes, read_recipe

        print("\n".join(format_recipes([read_recipe(path) for path in list_recipes().values()])))
        return
    if recipe is None:
        raise UsageError("recipe_missing")
    from attendo.cli.train import check_ahead, make_config

    chosen = _choose_recipe(recipe, seeds, variants)
    folder = chosen.data_folder(data)
    check_ahead(device)
    out = out or Path("runs") / "reproduce" / chosen.name
    chain = [chosen, *chosen.list_starts()]
    outs = [out.joinpath(*["start"] * depth) for depth in range(len(chain))]
    for each, its_out in zip(chain, outs, strict=True):  # errors are reported before anything is trained
        each.check_files(each.data_folder(data))
        for run in each.plan(its_out):
            make_config(each.path, {"folder": each.data_folder(data)}, run.changes)
    for each, start in pairwise(chain):
        print_stderr(say("{name} starts from the models of {other}", name=each.name, other=start.name))
    for each, its_out in reversed([*zip(chain, outs, strict=True)]):
        _train(each, each.plan(its_out), each.data_folder(data), device, jobs)
    if not _judge(chosen, chosen.plan(out), folder, device, out):
        raise typer.Exit(1)


def _choose_recipe(name: str, seeds: str | None, variants: str | None) -> "Recipe":
    """Return the selected recipe. Check early that its metrics can be computed."""
    from attendo.metrics import METRICS, check_metric
    from attendo.recipes.recipe import find_recipe

    numbers, names = _parse_list("--seeds", seeds, "1,2"), _parse_list("--variants", variants, "A,B")
    if wrong := [each for each in numbers if not each.isdecimal()]:
        raise UsageError("seeds_not_integers", value=wrong[0])
    recipe = find_recipe(name).select(tuple(dict.fromkeys(map(int, numbers))), tuple(dict.fromkeys(names)))
    for test in recipe.criteria.test:
        if test.metric in METRICS:
            check_metric(test.metric)
    return recipe


def _parse_list(option: str, value: str | None, example: str) -> list[str]:
    """Split a comma-separated option. Raise `UsageError` for an empty list, such as a script's empty variable."""
    found = [each.strip() for each in (value or "").split(",") if each.strip()]
    if value is not None and not found:
        raise UsageError("option_list_empty", option=option, value=value, example=example)
    return found


def _train(recipe: "Recipe", runs: "Sequence[PlannedRun]", folder: Path | None, device: str, max_jobs: int) -> None:
    """Train the runs that are not complete."""
    from attendo.cli.train import make_config
    from attendo.recipes.files import compute_checksums, list_training_files
    from attendo.recipes.run_state import read_run_state, write_text_checksums

    texts: dict[str | None, dict[str, str]] = {}  # checksums by variant; all seeds of a variant use the same text
    remaining: list[tuple[PlannedRun, RunConfig, bool]] = []
    for run in runs:
        config = make_config(recipe.path, {"folder": folder}, run.changes)
        if run.variant not in texts:
            texts[run.variant] = compute_checksums(list_training_files(config.data))
        state = read_run_state(run.folder, config, texts[run.variant])
        if state == "complete":
            print_stderr(say("{name}: complete, in {folder}", name=run.name, folder=run.folder))
        else:
            remaining.append((run, config, state == "begun"))
    if max_jobs > 1:
        for run in [run for run, _, is_started in remaining if not is_started]:
            write_text_checksums(run.folder, texts[run.variant])
        from attendo.cli.progress import train_in_parallel

        train_in_parallel(
            [_make_job(recipe, run, folder, device, is_started) for run, _, is_started in remaining], max_jobs
        )
        return
    for number, (run, config, is_started) in enumerate(remaining, start=1):
        print_stderr(
            say(
                "{name}: training {number} of {num_remaining}, in {folder}",
                name=run.name,
                number=number,
                num_remaining=len(remaining),
                folder=run.folder,
            )
        )
        _train_one(run, config, device, None if is_started else texts[run.variant])


def _train_one(run: "PlannedRun", config: "RunConfig", device: str, texts: dict[str, str] | None) -> None:
    """Train or resume a run. `texts` has the training text checksums of a new run."""
    from attendo.cli.progress import train_with_progress
    from attendo.runs.run import Run
    from attendo.text_model import pick_device

    own = pick_device(device)
    outcome = train_with_progress(Run.resume(run.folder, own) if texts is None else _start_run(run, config, own, texts))
    if outcome.stopped:
        print_stderr(say("the same command goes on from here"))
        raise typer.Exit(outcome.exit_code)


def _start_run(run: "PlannedRun", config: "RunConfig", device: "torch.device", texts: dict[str, str]) -> "Run":
    from attendo.recipes.run_state import read_run_state, write_text_checksums
    from attendo.runs.run import Run

    try:
        new_run = Run.begin(config, run.folder, device)
    except UsageError:
        if read_run_state(run.folder, config, texts) == "new":
            raise
        raise UsageError("run_started_by_another_process", folder=run.folder) from None
    write_text_checksums(run.folder, texts)
    return new_run


def _make_job(recipe: "Recipe", run: "PlannedRun", folder: Path | None, device: str, resumes: bool) -> "TrainingJob":
    from attendo.recipes.jobs import TrainingJob

    if resumes:
        words = ["train", "--resume", str(run.folder)]
    else:
        words = ["train", str(recipe.path), "--out", str(run.folder)]
        words += [] if folder is None else ["--data", str(folder)]
        words += [word for change in run.changes for word in ("--set", change)]
    log = run.folder.with_name(f"{run.folder.name}.log")
    return TrainingJob(run.name, [*words, "--device", device], log)


def _judge(recipe: "Recipe", runs: "Sequence[PlannedRun]", folder: Path | None, device: str, out: Path) -> bool:
    """Score and report all tests. Return True if no score is worse than expected and all outputs were saved."""
    from attendo.bench.comparison import collect_environment
    from attendo.recipes.results import make_outcome, write_results
    from attendo.recipes.scoring import OutputsNotSaved, ScoringStarted, TruncatedOutputs, score_tests
    from attendo.text_model import pick_device

    start, results, all_saved = time.monotonic(), [], True
    for report in score_tests(recipe, runs, folder, device):
        match report:
            case ScoringStarted():
                print_stderr(say("scoring {test}: {models}", test=report.test, models=report.models))
            case TruncatedOutputs():
                print_stderr(
                    say(
                        "{models}: {truncated} of {lines} answers to {test} were cut at the length limit",
                        models=report.models,
                        truncated=report.truncated,
                        lines=report.lines,
                        test=report.test,
                    )
                )
            case OutputsNotSaved():
                print_stderr(report.reason)
                all_saved = False
            case _:
                results.append(report)
    outcome = make_outcome(recipe, runs, results)
    seconds = time.monotonic() - start
    print("\n".join(format_outcome(outcome)), flush=True)  # before writing the results, which may fail
    path = write_results(outcome, out, folder, collect_environment(pick_device(device)), seconds)
    print_stderr(say("written to {path}", path=path))
    return outcome.verdict is not False and all_saved


def format_recipes(recipes: "Sequence[Recipe]") -> Iterator[str]:
    """Yield a table of recipes with tests, scores and data folder, each followed by its description."""
    lines = align_columns([row for recipe in recipes for row in _format_recipe_rows(recipe)], _LEFT_ALIGNED)
    yield next(lines)
    for recipe in recipes:
        yield from ("", *islice(lines, len(recipe.criteria.test)))
        yield from wrap(_describe_recipe(recipe), _LIST_WIDTH, initial_indent="  ", subsequent_indent="  ")


def format_outcome(outcome: "RecipeOutcome") -> Iterator[str]:
    """Yield one line per test, one line per variant or part of a test, and the verdict."""
    yield f"{outcome.recipe.name}: {translate(outcome.recipe.criteria.about)}"
    yield from align_columns([_format_cells(row) for row in outcome.rows], _LEFT_ALIGNED)
    if apart := [cells for row in outcome.rows for cells in _format_variant_cells(row)]:
        yield ""
        yield from align_columns(apart, _LEFT_ALIGNED)
    if outcome.recipe.full_scope is not None:
        yield say("not compared: the expected number is for {full_scope}", full_scope=outcome.recipe.full_scope)
    elif outcome.verdict is None:
        yield say("not judged: the recipe has no numbers that are expected")
    else:
        yield say("pass: as expected") if outcome.verdict else say("fail: worse than expected")


def _describe_recipe(recipe: "Recipe") -> str:
    judged = recipe.criteria
    trainings = len(judged.seeds) * max(1, len(judged.variants))
    variants = say(" of {num_variants} variants", num_variants=len(judged.variants)) if judged.variants else ""
    count = say("{count} trainings" if trainings > 1 else "{count} training", count=trainings)
    return f"{translate(judged.about)}{say('; ')}{count}{variants}"


def _format_recipe_rows(recipe: "Recipe") -> Iterator[dict[str, str]]:
    for number, test in enumerate(recipe.criteria.test):
        yield {
            "recipe": "" if number else recipe.name,
            "test": f"{test.name} {test.metric}",
            "expected": _format_expected(test) or say("not measured"),
            "published": "" if test.reference is None else f"{test.reference:g}",
            "data": "" if number else recipe.criteria.dataset or "",
        }


def _format_cells(row: "RecipeTestResult") -> dict[str, str]:
    test, metric = row.test, row.test.metric
    seeds = {say("seed {seed}", seed=seed): _format_number(value, metric) for seed, value in row.seeds.items()}
    together = {} if row.ensemble is None else {"together": _format_number(row.ensemble, metric)}
    found = {"test": test.name, "score": metric, **seeds, "mean": _format_number(row.mean, metric), **together}
    return {
        **found,
        "expected": _format_expected(test),
        "published": _format_published(test),
        "verdict": translate(_VERDICTS[row.verdict]),
    }


def _format_variant_cells(row: "RecipeTestResult") -> Iterator[dict[str, str]]:
    name = "part" if row.test.parts else "variant"
    for variant in dict.fromkeys(each.variant for each in row.scores if each.variant is not None):
        scores = {
            each.model_label: _format_number(each.score.value, row.test.metric)
            for each in row.select_scores(variant=variant)
        }
        named = {
            label if label == "together" else say("seed {seed}", seed=label): text for label, text in scores.items()
        }
        yield {"test": row.test.name, "score": row.test.metric, name: variant, **named}


def _format_expected(test: "Expectation") -> str:
    return "" if test.expected is None else f"{test.expected:g} ± {test.spread:g}"


def _format_published(test: "Expectation") -> str:
    source = "" if test.reference_source is None else f" ({test.reference_source})"
    return "" if test.reference is None else f"{test.reference:g}{source}"


def _format_number(value: float, metric: str) -> str:
    return f"{value:.4f}" if metric == "loss" else f"{value:.2f}"
