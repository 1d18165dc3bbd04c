"""What the process of a model or a judge computes: outputs, contrasts and measures of exposure on its texts."""

import gzip
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from attendo.atomic_files import replace_file
from attendo.explore.exposure import ExposureSettings, ParallelText, measure_exposure
from attendo.text_model import TextModel, load

from .faults import compute_contrasts, make_test_outputs
from .plan import BEAMS, TASKS, TESTED_CORRUPTIONS, Model, Study, read_text

GAP_POSITIONS = (1, 5, 10)


def evaluate(study: Study, name: str) -> None:
    """Write the results of a model or a judge on all its texts. Results that exist are kept."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # releases the GPU
    (study.out / "results").mkdir(exist_ok=True)
    if name.startswith("judge-"):
        judges = {judge.judge_name: (judge, texts) for judge, texts in study.plan.judged_texts.items()}
        model, texts = judges[name]
        measure: Callable[[Study, Model, str], dict[str, Any]] = calibrate
    else:
        model = next(each for each in study.plan.models if each.name == name)
        texts, measure = list(TASKS[model.task].texts), evaluate_model
    for text in texts:
        if not study.results_file(name, text).exists():
            content = json.dumps(measure(study, model, text), ensure_ascii=False)
            replace_file(study.results_file(name, text), gzip.compress(content.encode()))


def calibrate(study: Study, judge: Model, text: str) -> dict[str, Any]:
    """Return the contrasts of references of the validation text, and of right and faulty outputs of the test text."""
    model = _load(study, judge)
    sources, references = read_text(study, text)
    valid = compute_contrasts(model, *read_text(study, text, valid=True))
    outputs = make_test_outputs(sources, references)
    contrasts = {name: _round(compute_contrasts(model, sources, texts)) for name, texts in outputs.items()}
    return {
        "valid": _round(valid),
        "references": _round(compute_contrasts(model, sources, references)),
        "faults": contrasts,
    }


def evaluate_model(study: Study, name: Model, text: str) -> dict[str, Any]:
    """Return outputs, contrasts and measures of exposure on one text."""
    model, judge = _load(study, name), _load(study, study.plan.find_judge(name, text))
    oracle = _load(study, study.plan.find_oracle(name)) if len(study.plan.seeds) > 1 else None
    sources, references = read_text(study, text)
    outputs = {
        search: [each.text for each in model.generate(sources, beam=beam, split=False)]
        for search, beam in BEAMS.items()
    }
    limit = study.plan.exposure_lines
    pairs = ParallelText(sources[:limit], references[:limit])
    report = measure_exposure(model, pairs, oracle, ExposureSettings(seed=0))
    scored = model.score_tokens(sources, references)
    return {
        "facts": read_facts(study, name),
        "outputs": outputs,
        "contrasts": {search: _round(compute_contrasts(judge, sources, texts)) for search, texts in outputs.items()},
        "log_probs": [[round(each.log_probability, 4), len(each.log_probabilities)] for each in scored],
        "recovery": {each: _round_rows(report.recovery[each].differences.tolist()) for each in TESTED_CORRUPTIONS},
        "exposure": summarise_exposure(report.as_json()),
    }


def summarise_exposure(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a report that the tables show."""
    gap, excess = report["distractor"]["gap"], report["excess_error"]
    found = {
        "lines": report["sentences"],
        "cut": report["cut"],
        "accuracy_gold": 100 * report["accuracy"]["gold_mean"],
        "accuracy_own": 100 * report["accuracy"]["own_mean"],
        "nll": report["nll"],
        "oracle_nll": report["oracle_nll"],
        "excess_sampled": excess and excess["sampled"]["percent"][-1],
        "excess_greedy": excess and excess["greedy"]["percent"][-1],
        **{f"gap_{position}": gap[position - 1] for position in GAP_POSITIONS if position <= len(gap)},
    }
    for name, recovery in report["recovery"].items():
        found[f"{name}_deltas"] = [None if each is None else round(each, 4) for each in recovery["deltas"]]
        found[f"{name}_half_life"] = recovery["half_life"] or f"> {recovery['max_distance']}"
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def read_facts(study: Study, model: Model) -> dict[str, Any]:
    """Return updates, seconds and scores of a training, and for mrt the reward and the entropy at both ends."""
    folder = study.run_folder(model)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    valid = [line for line in lines if line["kind"] == "validation"]
    facts = {"steps": steps[-1]["step"], "seconds": round(steps[-1]["seconds"], 1)}
    scores = {"loss": valid[-1]["loss"], **valid[-1]["scores"]} if valid else {}
    tenth = max(1, len(steps) // 10)
    for name in ("reward", "entropy") if model.treatment == "mrt" else ():
        for end, part in (("first", steps[:tenth]), ("last", steps[-tenth:])):
            facts[f"{name}_{end}"] = round(sum(each[name] for each in part) / tenth, 4)
    return facts | {f"valid_{name}": round(value, 4) for name, value in scores.items()}


@cache
def _load(study: Study, model: Model) -> TextModel:
    return load(study.run_folder(model) / "model", study.device)


def _round(values: Any) -> list[float | None]:
    return [None if each == float("inf") else round(float(each), 4) for each in values]


def _round_rows(rows: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [[None if each != each else round(each, 4) for each in row] for row in rows]  # NaN is null
