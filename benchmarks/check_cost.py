"""Measures what checks of outputs cost, as ratios to the time of generation in one run.

    python benchmarks/check_cost.py runs/demo/model

The ways of checking take turns, and times are CPU times, so that the ratios are right on a busy machine
too. `off again` shows their noise.
`checks alone` is the time of the detectors divided by that of generation without a check.
"""

import argparse
import time
from statistics import median
from typing import Any

import attendo
from attendo.demo_task import BuiltinTask
from attendo.text_model import TextModel
from attendo.text_model.checking import OutputChecker

WAYS: dict[str, dict[str, Any]] = {
    "off": {},
    "off again": {},
    "report": {"check": "report"},
    "report, check_detached": {"check": "report", "check_detached": True},
    "repair": {"check": "repair"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lines", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    model = attendo.load(arguments.model, "cpu")
    texts = [pair.source for pair in BuiltinTask().heldout(arguments.lines)]
    for name, options in (("greedy, one batch", {}), ("beam 4, one batch", {"beam": 4})):
        print(name, *_measure(lambda way, options=options: model.generate(texts, **options, **way), arguments.rounds))
        print(f"    checks alone {_measure_checks(model, texts, options, arguments.rounds):.3f}")
    single = texts[:16]
    print("greedy, one by one", *_measure(lambda way: [model.generate([text], **way) for text in single], 15))


def _measure_checks(model: TextModel, texts: list[str], options: dict[str, Any], rounds: int) -> float:
    """Return the median over rounds of the time of the detectors, relative to generation."""
    checker, ratios = OutputChecker(model.fault_limits), []
    for _ in range(rounds):
        begun = time.process_time()
        results = model.generate(texts, **options)
        generated = time.process_time()
        for text, result in zip(texts, results, strict=True):
            checker.check(text, result.best)
        ratios.append((time.process_time() - generated) / (generated - begun))
    return median(ratios)


def _measure(run: Any, rounds: int) -> list[str]:
    """Return the median ratio of each way to `off`, over rounds in which all ways take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name, way in WAYS.items():
            begun = time.process_time()
            run(way)
            if number:  # the first round warms up
                seconds[name].append(time.process_time() - begun)
    ratios = {
        name: [one / off for one, off in zip(each, seconds["off"], strict=True)] for name, each in seconds.items()
    }
    return [f"| {name} {median(each):.3f}" for name, each in ratios.items()]


if __name__ == "__main__":
    main()
