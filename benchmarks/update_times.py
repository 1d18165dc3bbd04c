"""Times the updates of several recipes, which take turns in one process.

    python benchmarks/update_times.py tatoeba_en_de tatoeba_en_de_graph --data data --start runs/base/model

The time per target token of each recipe is divided by that of the first one in the same turn; a turn has several
updates. Recipes that start from the model of another recipe start from `--start`. The last line is a JSON object.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from attendo.bench.comparison import collect_environment
from attendo.recipes.recipe import Recipe, find_recipe
from attendo.runs.config import RunConfig
from attendo.runs.run import Run
from attendo.train.loop import Step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", metavar="RECIPE")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    parser.add_argument("--start", type=Path, help="model of the recipes that start from another recipe's")
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--warm-up", type=int, default=200, help="updates of each recipe before the timed ones")
    parser.add_argument("--updates", type=int, default=50, help="updates of a turn")
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    costs: dict[str, list[float]] = {name: [] for name in arguments.recipes}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        trainings = {}
        for name in costs:
            config = _make_config(find_recipe(name), arguments)
            run = Run.begin(config, Path(folder) / Path(name).stem, arguments.device)
            for _ in run.prepare():
                pass
            trainings[name] = _list_steps(stack.enter_context(closing(run.train())))
            _time_updates(trainings[name], arguments.warm_up, arguments.device)
            print(f"{name} is warm", flush=True)
        for _ in range(arguments.turns):
            for name, steps in trainings.items():
                costs[name].append(_time_updates(steps, arguments.updates, arguments.device))
    first = costs[arguments.recipes[0]]
    for name, cost in costs.items():
        ratio = median(own / other for own, other in zip(cost, first, strict=True))
        print(f"{name:40} {ratio:5.2f} {1 / median(cost):12,.0f} target tokens/s")
    print(json.dumps({"seconds_per_target_token": costs, "environment": collect_environment(arguments.device)}))


def _make_config(recipe: Recipe, arguments: argparse.Namespace) -> RunConfig:
    values = {name: value for name, value in recipe.values.items() if name != "reproduce"}
    data = {**values["data"], "folder": recipe.data_folder(arguments.data)}
    train = {**values["train"], "validate_every": values["train"]["steps"], "save_every": values["train"]["steps"]}
    start = {} if recipe.criteria.start_recipe is None else {"start_from": arguments.start}
    return RunConfig(**{**values, "data": data, "train": train, "seed": 1, **start})


def _list_steps(training: Iterator[object]) -> Iterator[Step]:
    return (report for report in training if isinstance(report, Step))


def _time_updates(steps: Iterator[Step], count: int, device: torch.device) -> float:
    """Return the seconds per target token of the next updates."""
    _wait_for(device)
    begun = time.perf_counter()
    tokens = sum(next(steps).tokens for _ in range(count))
    _wait_for(device)
    return (time.perf_counter() - begun) / tokens


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
