"""Scores and tests from the results of all models and judges: the content of the JSON file."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

import numpy as np

from .faults import SIMILAR_SHARE, contrast_limit, find_loops, find_paraphrases, make_test_outputs, share_of_similar
from .paired_statistics import Measure, compare, measure_outputs, measure_recovery, shorten
from .plan import BEAMS, CONTROLS, TASKS, TESTED_CORRUPTIONS, Model, Plan, Study, read_text


def collect(study: Study, jobs: int) -> dict[str, Any]:
    """Return the content of the JSON file. Texts are computed in parallel. Missing results are left out."""
    units = [(study, task, text) for task in study.plan.tasks for text in TASKS[task].texts]
    if jobs == 1:
        found = [_collect_text(*unit) for unit in units]
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            found = list(pool.map(_collect_text, *zip(*units, strict=True)))
    models: dict[str, Any] = {}
    for (_, _, text), part in zip(units, found, strict=True):
        for name, (facts, values) in part["models"].items():
            models.setdefault(name, {**facts, "texts": {}})["texts"][text] = values
    texts = dict.fromkeys(text for _, _, text in units)
    return {
        "plan": asdict(study.plan),
        "tasks": {
            name: {"in_domain": TASKS[name].in_domain, "shifted": TASKS[name].shifted} for name in study.plan.tasks
        },
        "models": models,
        "comparisons": [each for part in found for each in part["comparisons"]],
        "detectors": [each for text in texts for each in _judge_detectors(study, text)],
    }


def _collect_text(study: Study, task: str, text: str) -> dict[str, Any]:
    """Measure and compare all models of a task on one text."""
    sources, references = read_text(study, text)
    measures: dict[Model, dict[str, dict[str, Measure]]] = {}
    models: dict[str, Any] = {}
    for model in study.plan.models:
        raw = _read_results(study, model.name, text) if model.task == task else None
        judged = _read_results(study, study.plan.find_judge(model, text).judge_name, text)
        if raw is None or judged is None:
            continue
        measures[model] = _measure(raw, judged, sources, references)
        values = {part: _values(each) for part, each in measures[model].items()}
        identity = {"task": model.task, "seed": model.seed, "treatment": model.treatment}
        models[model.name] = {**identity, **raw["facts"]}, {**values, "exposure": raw["exposure"]}
    return {"models": models, "comparisons": list(_compare_all(study.plan, task, text, measures))}


def _measure(
    raw: Mapping[str, Any], judged: Mapping[str, Any], sources: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, Measure]]:
    """Return the measures of one model on one text: of both searches, and of given prefixes."""
    limit = contrast_limit(_to_array(judged["valid"]))
    found = {
        search: measure_outputs(sources, references, raw["outputs"][search], _to_array(raw["contrasts"][search]), limit)
        for search in BEAMS
    }
    return {
        **found,
        "prefix": measure_recovery(raw["log_probs"], {name: raw["recovery"][name] for name in TESTED_CORRUPTIONS}),
    }


def _values(measures: Mapping[str, Measure]) -> dict[str, float]:
    return {name: shorten(each.value) for name, each in measures.items()}


def _compare_all(
    plan: Plan, task: str, text: str, measures: Mapping[Model, Mapping[str, Mapping[str, Measure]]]
) -> Iterator[dict[str, Any]]:
    """Yield the comparison of each treatment with its control, and of mrt with base, for every measure."""
    for treatment, control in [*CONTROLS.items(), ("mrt", "base")]:
        pairs = [(Model(task, seed, treatment), Model(task, seed, control)) for seed in plan.seeds]
        pairs = [(one, other) for one, other in pairs if one in measures and other in measures]
        if not pairs:
            continue
        parts: dict[str, dict[str, Any]] = {}
        for part, names in measures[pairs[0][0]].items():
            for name in names:
                sides = ([measures[pair[side]][part][name] for pair in pairs] for side in (0, 1))
                parts.setdefault(part, {})[name] = compare(*sides)
        yield {"task": task, "text": text, "treatment": treatment, "control": control, "parts": parts}


def _judge_detectors(study: Study, text: str) -> Iterator[dict[str, Any]]:
    """Yield what the rules find in references and in injected faults, in percent of the lines, for each judge."""
    sources, references = read_text(study, text)
    outputs = {"references": references, **make_test_outputs(sources, references)}
    paraphrases = sorted(find_paraphrases(sources, references))
    for judge in study.plan.judged_texts:
        judged = _read_results(study, judge.judge_name, text)
        if judged is None:
            continue
        limit = contrast_limit(_to_array(judged["valid"]))
        contrasts = {"references": judged["references"], **judged["faults"]}
        for name, texts in outputs.items():
            lines = paraphrases if name == "paraphrases" else range(len(texts))
            shares = _apply_rules(sources, references, texts, _to_array(contrasts[name]), limit, lines)
            facts = {"text": text, "judge": judge.name, "limit": round(limit, 4), "outputs": name, "lines": len(lines)}
            yield {**facts, **shares}


def _apply_rules(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str], contrasts: Any, limit: float,
    lines: Sequence[int],
) -> dict[str, float]:  # fmt: skip
    """Return the percentage of lines that each rule finds."""
    similar = share_of_similar(outputs, references) >= SIMILAR_SHARE
    loops, low = find_loops(sources, outputs), contrasts <= limit
    flags = {"loop": loops, "low_contrast": low, "not_similar": similar, "detached": low & similar}
    flags["hallucinated"] = loops | flags["detached"]
    chosen = list(lines)
    return {name: round(100 * float(each[chosen].mean()), 2) if chosen else 0.0 for name, each in flags.items()}


def _to_array(values: Sequence[float | None]) -> Any:
    return np.array([np.inf if each is None else each for each in values], np.float64)


def _read_results(study: Study, name: str, text: str) -> dict[str, Any] | None:
    file = study.results_file(name, text)
    found: dict[str, Any] | None = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else None
    return found
