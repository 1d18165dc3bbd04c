"""Measures the fault detectors and the repairs on a weak model and on sources that it was not made for.

    python benchmarks/fault_detection.py --out runs/fault-detection

The model is trained on a few pairs of the built-in task (two minutes on two CPU cores). An output is a failure if its
sentence chrF with the reference is below `--chrf`, or if its length is below half or above twice that of the
reference. Precision and recall are those of the faults that `check` reports, AUROC that of the values behind them.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attendo.demo_task import AlignedPair, BuiltinTask
from attendo.metrics.fault_limits import FaultLimits, OutputScore, common_run, excess_repetition, split_words
from attendo.metrics.faults import KINDS
from attendo.metrics.pairwise import pairwise_chrf
from attendo.runs.demo import demo_config
from attendo.runs.run import Run
from attendo.text_model import Result, TextModel, load

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Pair = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/fault-detection"))
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--lines", type=int, default=200, help="sources of each kind")
    parser.add_argument("--chrf", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    model = _train(arguments.out, arguments.pairs, arguments.steps, arguments.seed)
    held_out = BuiltinTask(arguments.seed).heldout(1000 + arguments.lines)
    valid, test = held_out[arguments.lines :], held_out[: arguments.lines]
    model.calibrate([pair.source for pair in valid], [pair.target for pair in valid])
    sets = make_sets(test, random.Random(arguments.seed))
    pairs = [pair for each in sets.values() for pair in each]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    checked = model.generate(sources, check="report", check_detached=True, split=False)
    repaired = model.generate(sources, check="repair", check_detached=True, split=False)
    failed = find_failures(checked, references, arguments.chrf)
    after = find_failures(repaired, references, arguments.chrf)
    print_detectors(checked, failed, measure_signals(model, sources, checked))
    print_repairs({name: len(each) for name, each in sets.items()}, failed, after, repaired)


def make_sets(pairs: Sequence[AlignedPair], draw: random.Random) -> dict[str, list[Pair]]:
    """Return sources of each kind with their references."""
    plain = [(pair.source, pair.target) for pair in pairs]
    others = draw.sample(plain, len(plain))
    return {
        "plain": plain,
        "random characters": [(_scramble(source, draw, 0.3), target) for source, target in plain],
        "unseen words": [(_replace_words(source, draw, 2), target) for source, target in plain],
        "over-long": [
            (", and ".join(each[0] for each in group), " ， ".join(each[1] for each in group))
            for group in zip(plain, others, plain[::-1], others[::-1], strict=True)
        ],
        "doubled": [(f"{source} {source}", f"{target} {target}") for source, target in plain],
    }


def _scramble(text: str, draw: random.Random, share: float) -> str:
    """Replace a share of the letters."""
    return "".join(draw.choice(LETTERS) if each.isalpha() and draw.random() < share else each for each in text)


def _replace_words(text: str, draw: random.Random, count: int) -> str:
    words = text.split()
    for number in draw.sample(range(len(words)), min(count, len(words))):
        words[number] = "".join(draw.choices(LETTERS, k=6))
    return " ".join(words)


def find_failures(results: Sequence[Result], references: Sequence[str], least_chrf: float) -> np.ndarray:
    """Return which outputs fail by the rules of this file."""
    failed = []
    for result, reference in zip(results, references, strict=True):
        ratio = (len(split_words(result.text)) + 1) / (len(split_words(reference)) + 1)
        chrf = float(pairwise_chrf([result.text], [reference])[0, 0])
        failed.append(chrf < least_chrf or not 0.5 <= ratio <= 2)
    return np.array(failed)


def measure_signals(model: TextModel, sources: Sequence[str], results: Sequence[Result]) -> dict[str, np.ndarray]:
    """Return the value behind each detector, higher for worse outputs, and the dissimilarity of samples."""
    limits = model.fault_limits
    outputs = [result.text for result in results]
    scored, without = model.score_tokens(sources, outputs), model.score_tokens([""] * len(outputs), outputs)
    scores = [OutputScore(len(one.pieces), one.log_probability / len(one.pieces), None) for one in scored]
    contrasts = [
        (one.log_probability - other.log_probability) / len(one.pieces)
        for one, other in zip(scored, without, strict=True)
    ]
    words = [(split_words(source), split_words(output)) for source, output in zip(sources, outputs, strict=True)]
    samples = model.generate(sources, sample=True, n_best=8, distinct=False, split=False)
    agreement = [
        pairwise_chrf([output], [each.text for each in sample.hypotheses]).mean()
        for output, sample in zip(outputs, samples, strict=True)
    ]
    values: dict[str, Sequence[float]] = {
        "loop": [excess_repetition(one, other) for one, other in words],
        "copy": [common_run(one, other)[2] / max(len(other), 1) for one, other in words],
        "length_outlier": [_length_deviation(len(one), len(other), limits) for one, other in words],
        "wrong_language": [-limits.language_log_odds(output) for output in outputs],
        "low_probability": [-limits.standardise(score) for score in scores],
        "detached_from_source": [-each for each in contrasts],
        "samples differ": [-each for each in agreement],
    }
    return {name: np.array(each) for name, each in values.items()}


def _length_deviation(source_words: int, words: int, limits: FaultLimits) -> float:
    """Return the distance from the middle of the usual lengths, in halves of their range."""
    low, high = np.log(np.maximum(np.add(limits.length_range(source_words), 1), 0.1))
    return abs(np.log(words + 1) - (low + high) / 2) / ((high - low) / 2)


def measure_auroc(values: np.ndarray, failed: np.ndarray) -> float:
    """Return the probability that a failure has a higher value than another output. Ties count half."""
    higher = (values[failed][:, None] > values[~failed][None]).mean()
    return float(higher + 0.5 * (values[failed][:, None] == values[~failed][None]).mean())


def print_detectors(results: Sequence[Result], failed: np.ndarray, signals: dict[str, np.ndarray]) -> None:
    print(f"{failed.sum()} of {len(failed)} outputs fail\n")
    print("| detector | flagged | precision | recall | AUROC |\n|---|---:|---:|---:|---:|")
    found: dict[str, Callable[[Result], bool]] = {
        kind: lambda result, kind=kind: any(each.kind == kind for each in result.faults) for kind in KINDS
    }
    found["any but hints"] = lambda result: bool(result.report and result.report.serious)
    found["samples differ"] = lambda result: False
    for name, is_flagged in found.items():
        flagged = np.array([is_flagged(each) for each in results])
        precision = f"{failed[flagged].mean():.2f}" if flagged.any() else "–"
        auroc = f"{measure_auroc(signals[name], failed):.3f}" if name in signals else "–"
        print(f"| {name} | {flagged.sum()} | {precision} | {flagged[failed].mean():.2f} | {auroc} |")


def print_repairs(sizes: dict[str, int], failed: np.ndarray, after: np.ndarray, repaired: Sequence[Result]) -> None:
    print("\n| sources | failures | after repair | outputs replaced |\n|---|---:|---:|---:|")
    kept = np.array([any(each.kept for each in result.repairs) for result in repaired])
    begin = 0
    for name, size in [*sizes.items(), ("all", len(failed))]:
        rows = slice(0, None) if name == "all" else slice(begin, begin + size)
        begin += size
        print(f"| {name} | {failed[rows].mean():.1%} | {after[rows].mean():.1%} | {kept[rows].mean():.1%} |")


def _train(folder: Path, pairs: int, steps: int, seed: int) -> TextModel:
    """Train a weak model, or load it if the folder has it."""
    if (folder / "model" / "manifest.json").is_file():
        return load(folder / "model", "cpu")
    demo = demo_config(seed)
    train: dict[str, Any] = {"steps": steps, "validate_every": steps, "save_every": steps, "weight_checkpoints": 0}
    config = demo.replace(data={"task": "builtin", "pairs": pairs}, train=demo.train.replace(**train))
    run = Run.begin(config, folder, torch.device("cpu"))
    for _ in run.prepare():
        pass
    run.build()
    for _ in run.train():
        pass
    return load(run.finish(), "cpu")


if __name__ == "__main__":
    main()
