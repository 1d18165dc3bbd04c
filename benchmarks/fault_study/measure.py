"""Measures the fault detectors and the repairs on two weak models.

    python -m benchmarks.fault_study --out runs/fault-study

`test_bed.py` has the models and their sources. An output is a failure if its sentence chrF with the reference is below
`--chrf`, or if its length is below half or above twice that of the reference. Precision and recall are those of the
faults that `check` reports, AUROC that of the values behind them. The training takes five minutes on two CPU cores.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from attendo.metrics.fault_limits import FaultLimits, OutputScore, common_run, excess_repetition, split_words
from attendo.metrics.faults import KINDS
from attendo.metrics.pairwise import pairwise_chrf
from attendo.text_model import Result, TextModel
from benchmarks.fault_study.source_contribution import measure_source_contribution
from benchmarks.fault_study.test_bed import Pair, Sets, make_faulty_sets, make_hard_sets, train_faulty, train_few

_NUM_SAMPLES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/fault-study"))
    parser.add_argument("--lines", type=int, default=200, help="sources of each kind")
    parser.add_argument("--chrf", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seed, lines, folder = arguments.seed, arguments.lines, arguments.out / str(arguments.seed)
    print("# Few pairs")
    measure_model(train_few(folder / "few", seed), *make_hard_sets(seed, lines), arguments.chrf)
    print("\n# Faulty pairs")
    measure_model(train_faulty(folder / "faulty", seed), *make_faulty_sets(seed, lines), arguments.chrf)


def measure_model(model: TextModel, calibration: Sequence[Pair], sets: Sets, least_chrf: float) -> None:
    model.calibrate([source for source, _ in calibration], [target for _, target in calibration])
    pairs = [pair for each in sets.values() for pair in each]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    checked = model.generate(sources, check="report", check_detached=True, split=False)
    repaired = model.generate(sources, check="repair", check_detached=True, split=False)
    failed = find_failures(checked, references, least_chrf)
    after = find_failures(repaired, references, least_chrf)
    print_detectors(checked, failed, measure_signals(model, sources, checked))
    print_kinds({name: len(each) for name, each in sets.items()}, checked)
    print_repairs({name: len(each) for name, each in sets.items()}, failed, after, repaired)


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
    values: dict[str, Sequence[float]] = {
        "loop": [excess_repetition(one, other) for one, other in words],
        "copy": [common_run(one, other)[2] / max(len(other), 1) for one, other in words],
        "length_outlier": [_length_deviation(len(one), len(other), limits) for one, other in words],
        "wrong_language": [-limits.language_log_odds(output) for output in outputs],
        "low_probability": [-limits.standardise(score) for score in scores],
        "detached_from_source": [-each for each in contrasts],
        "sum of log-probabilities": [-one.log_probability for one in scored],
        "Seq-Logprob": [-each.log_probability for each in scores],
        "source contribution (ALTI+)": measure_contributions(model, sources, results),
        "samples differ": measure_disagreement(model, sources, outputs, dropout=False),
        "dropout passes differ": measure_disagreement(model, sources, outputs, dropout=True),
    }
    return {name: np.array(each) for name, each in values.items()}


def measure_contributions(model: TextModel, sources: Sequence[str], results: Sequence[Result]) -> list[float]:
    """Return one minus the mean share of the source in the predictions of each output."""
    found = []
    for source, result in zip(sources, results, strict=True):
        shares = measure_source_contribution(model.network, model.trace(source, result.text))
        found.append(1 - float(shares.mean()))
    return found


def measure_disagreement(
    model: TextModel, sources: Sequence[str], outputs: Sequence[str], dropout: bool
) -> list[float]:
    """Return how little each output agrees with other outputs for its source: samples, or passes with dropout (chrF).

    The dropout passes are greedy, and force the network into training mode (Guerreiro et al. 2023).
    """
    if not dropout:
        found = model.generate(sources, sample=True, n_best=_NUM_SAMPLES, distinct=False, split=False)
        others = [[each.text for each in result.hypotheses] for result in found]
    else:
        torch.manual_seed(0)
        passes = [_search_with_dropout(model, sources) for _ in range(_NUM_SAMPLES)]
        others = [list(texts) for texts in zip(*passes, strict=True)]
    return [100 - float(pairwise_chrf([output], each).mean()) for output, each in zip(outputs, others, strict=True)]


def _search_with_dropout(model: TextModel, sources: Sequence[str]) -> list[str]:
    call = model.prepare_call(sources, split=False, engine="cached")
    model.network.train()
    with torch.no_grad():
        found = call.generation.generate(call.lines, model.make_engine(call.config, constrained=False))
    model.network.eval()
    return [each[0].text for each in found]


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
    found |= {name: lambda result: False for name in signals if name not in found}
    for name, is_flagged in found.items():
        flagged = np.array([is_flagged(each) for each in results])
        precision = f"{failed[flagged].mean():.2f}" if flagged.any() else "–"
        auroc = f"{measure_auroc(signals[name], failed):.3f}" if name in signals else "–"
        print(f"| {name} | {flagged.sum()} | {precision} | {flagged[failed].mean():.2f} | {auroc} |")


def print_kinds(sizes: dict[str, int], results: Sequence[Result]) -> None:
    """Print how many outputs for each kind of source have each fault."""
    print(f"\n| sources | {' | '.join(KINDS)} |\n|---|{'---:|' * len(KINDS)}")
    for name, rows in list_rows(sizes):
        counts = [sum(any(each.kind == kind for each in result.faults) for result in results[rows]) for kind in KINDS]
        print(f"| {name} | {' | '.join(map(str, counts))} |")


def print_repairs(sizes: dict[str, int], failed: np.ndarray, after: np.ndarray, repaired: Sequence[Result]) -> None:
    print("\n| sources | failures | after repair | outputs replaced |\n|---|---:|---:|---:|")
    kept = np.array([any(each.kept for each in result.repairs) for result in repaired])
    for name, rows in list_rows(sizes):
        print(f"| {name} | {failed[rows].mean():.1%} | {after[rows].mean():.1%} | {kept[rows].mean():.1%} |")


def list_rows(sizes: dict[str, int]) -> list[tuple[str, slice]]:
    """Return the rows of each kind of source, and of all."""
    found, begin = [], 0
    for name, size in sizes.items():
        found.append((name, slice(begin, begin + size)))
        begin += size
    return [*found, ("all", slice(0, begin))]
