"""Compares speed and quality of several models and decoding options, which take turns in one process.

    python benchmarks/generation_kinds.py --source FILE [--reference FILE] [--device cuda] NAME=MODEL[:OPTION=VALUE]...
    python benchmarks/generation_kinds.py --source test.en greedy=ar/model:beam=1 graph=graph/model \\
        drafted=ar/model:beam=1:draft=ctc/model

Every system translates the first sentence, then every system the second one, and so on: milliseconds from text to text.
Then all sentences are translated in batches, several rounds: tokens per second. Ratios are medians of paired times to
the systems of --compare, default: the first one. With references there are BLEU, chrF, exact match, words equal to the
word before, the ratio of lengths, and the log-probability of the references if the kind has one. If a model is in a run
folder, there are the target tokens and seconds of its training, and of the model that it started from.
`--json` writes all of it with machine, versions, date and command. `kinds_page.py` makes a table and a picture of it.
"""

import argparse
import gzip
import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import attendo
from attendo.bench.comparison import collect_environment
from attendo.explore.curves import METRICS_FILE
from attendo.metrics import score
from attendo.recipes.run_state import read_run_facts
from attendo.runs.config import load_run_config
from attendo.text_model import ScoredTarget, TextModel

_WARM_UP = 2  # rounds over the sentences before the timed one: a CUDA graph is captured at the fourth call of a shape
_METRICS = ("bleu", "chrf", "exact_match")


@dataclass
class System:
    """A model with decoding options, and its results."""

    name: str
    folder: Path
    model: TextModel
    options: dict[str, Any]
    milliseconds: list[float] = field(default_factory=list)
    batch_seconds: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tokens: int = 0

    def translate_one(self, text: str, is_timed: bool) -> None:
        start = time.perf_counter()
        self.model.generate([text], **self.options)
        if is_timed:
            self.milliseconds.append(1000 * (time.perf_counter() - start))

    def translate_all(self, texts: Sequence[str], batch: int) -> None:
        results, start = [], time.perf_counter()
        for first in range(0, len(texts), batch):
            results += self.model.generate(texts[first : first + batch], **self.options)
        self.batch_seconds.append(time.perf_counter() - start)
        self.texts, self.tokens = [each.text for each in results], sum(len(each.ids) for each in results)


def main() -> None:
    arguments = _parse_arguments()
    texts = _read_lines(arguments.source)[: arguments.lines]
    references = _read_lines(arguments.reference)[: arguments.lines] if arguments.reference else None
    systems = [_load(each, arguments.device) for each in arguments.systems]
    compared = _find(systems, arguments.compare.split(",")) if arguments.compare else systems[:1]
    training = {each.folder: _describe_training(each.folder) for each in systems}  # missing files are reported first
    _run_in_turns(systems, texts, arguments)
    scored = None if references is None else _score_references(systems, texts, references)
    found = []
    for each in systems:
        found.append({**_measure_speed(each, compared), **training[each.folder]})
        if references is not None and scored is not None:
            found[-1] |= {**_measure_quality(each, references), **scored[each.folder]}
        print(json.dumps(found[-1], ensure_ascii=False), flush=True)
    if arguments.json:
        facts = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "benchmarks/generation_kinds.py", *sys.argv[1:]]),
            "environment": collect_environment(systems[0].model.device),
            "lines": len(texts),
            "single": min(arguments.single, len(texts)),
            "batch": arguments.batch,
            "rounds": arguments.rounds,
        }
        text = json.dumps({**facts, "systems": found}, ensure_ascii=False, indent=1)
        arguments.json.write_text(f"{text}\n", "utf-8")


def _run_in_turns(systems: Sequence[System], texts: Sequence[str], arguments: argparse.Namespace) -> None:
    """Every other round has the reverse order, so that no system is always measured after the same one."""
    for number in range(_WARM_UP + 1):
        for text in texts[: arguments.single]:
            for each in systems[:: 1 if number % 2 else -1]:
                each.translate_one(text, is_timed=number == _WARM_UP)
    for number in range(arguments.rounds + 1):
        for each in systems[:: 1 if number % 2 else -1]:
            each.translate_all(texts, arguments.batch)


def _measure_speed(system: System, compared: Sequence[System]) -> dict[str, Any]:
    seconds = median(system.batch_seconds[1:])  # the first round warms up
    alone, together = {}, {}
    for other in compared:
        pairs = zip(other.milliseconds, system.milliseconds, strict=True)
        alone[other.name] = round(median(before / after for before, after in pairs), 3)
        together[other.name] = round(median(other.batch_seconds[1:]) / seconds, 3)
    return {
        "system": system.name,
        "model": str(system.folder),
        "kind": system.model.kind,
        "options": system.options,
        "parameters": sum(weight.numel() for weight in system.model.network.parameters()),
        "ms_p50": round(median(system.milliseconds), 3),
        "ms_p95": round(quantiles(system.milliseconds, n=20)[-1], 3),
        "times_faster_alone": alone,
        "tokens_per_second": round(system.tokens / seconds),
        "times_faster_in_batches": together,
        "same_as_first": sum(one == other for one, other in zip(system.texts, compared[0].texts, strict=True)),
    }


def _measure_quality(system: System, references: Sequence[str]) -> dict[str, Any]:
    words = [text.split() for text in system.texts]
    repeated = sum(one == other for line in words for one, other in pairwise(line))
    length = sum(map(len, words))
    return {
        **{name: round(score(name, system.texts, references).value, 2) for name in _METRICS},
        "repeated_percent": round(100 * repeated / max(1, length), 3),
        "length_ratio": round(length / max(1, sum(len(text.split()) for text in references)), 4),
    }


def _score_references(
    systems: Sequence[System], sources: Sequence[str], references: Sequence[str]
) -> dict[Path, dict[str, Any]]:
    """Return the log-probability of the references per token (EOS included) by model folder.

    A reference that does not fit on the positions of a model has probability 0. Such lines count for no model.
    """
    scored: dict[Path, list[ScoredTarget] | None] = {}
    for each in systems:
        if each.folder not in scored:
            has_likelihood = each.model.kind != "masked"
            scored[each.folder] = each.model.score_tokens(sources, references) if has_likelihood else None
    every = [lines for lines in scored.values() if lines is not None]
    fitting = [all(math.isfinite(line.log_probability) for line in lines) for lines in zip(*every, strict=True)]
    found: dict[Path, dict[str, Any]] = {}
    for folder, lines in scored.items():
        kept = [line for line, is_fitting in zip(lines or [], fitting, strict=lines is not None) if is_fitting]
        tokens, total = sum(len(line.pieces) for line in kept), sum(line.log_probability for line in kept)
        found[folder] = {
            "log_probability_per_token": round(total / tokens, 4) if tokens else None,
            "reference_tokens": tokens or None,  # equal for models with the same vocabulary
            "references_left_out": None if lines is None else fitting.count(False),
        }
    return found


def _describe_training(model: Path) -> dict[str, Any]:
    """Return the cost of a model's training. The tokens and seconds include those of the model it started from."""
    if not (model.parent / METRICS_FILE).is_file():
        return {}
    runs = [model.parent]
    while (start := load_run_config(runs[-1]).start_from) is not None:
        runs.append(start.parent)
    facts = [read_run_facts(run) for run in runs]
    return {
        "target_tokens": sum(each["target_tokens"] for each in facts),
        "training_seconds": round(sum(each["training_seconds"] for each in facts), 1),
        "trainings": [
            {
                "run": "/".join(run.parts[-2:]),
                **{name: each[name] for name in ("steps", "best_step", "target_tokens", "training_seconds")},
                "device": each["trained_with"].get("device"),
                "threads": each["trained_with"].get("threads"),
            }
            for run, each in zip(runs, facts, strict=True)
        ],
    }


def _find(systems: Sequence[System], names: Sequence[str]) -> list[System]:
    known = {each.name: each for each in systems}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"--compare names no system: {unknown[0]}; known: {', '.join(known)}")
    return [known[name] for name in names]


def _load(text: str, device: str) -> System:
    name, _, rest = text.partition("=")
    folder, *pairs = rest.split(":")
    options: dict[str, Any] = {key: _parse(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    model, draft = attendo.load(folder, device), options.pop("draft", None)
    model = model if draft is None else model.with_draft(attendo.load(draft, device))
    return System(name, Path(folder), model, options)


def _parse(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+", metavar="NAME=MODEL[:OPTION=VALUE]...")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to this file")
    parser.add_argument("--compare", metavar="NAME,NAME", help="systems that the ratios are relative to")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lines", type=int, default=1000, help="sentences that are used")
    parser.add_argument("--single", type=int, default=200, help="sentences that are translated one at a time")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
