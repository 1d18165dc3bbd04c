"""Compares the speed and the outputs of several models and decoding options, which take turns in one process.

    python benchmarks/generation_kinds.py --source FILE [--reference FILE] [--device cuda] NAME=MODEL[:OPTION=VALUE]...
    python benchmarks/generation_kinds.py --source test.en greedy=ar/model:beam=1 graph=graph/model \\
        drafted=ar/model:beam=1:draft=ctc/model

Every system translates the first sentence, then every system the second one, and so on: milliseconds from text to text.
Then all sentences are translated in batches, several rounds: tokens per second. Ratios are to the first system of the
command line. With references, BLEU, chrF and the words equal to the word before are printed too.
"""

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import attendo
from attendo.metrics import score
from attendo.text_model import TextModel

_WARM_UP = 2  # rounds over the sentences before the timed one: a CUDA graph is captured at the fourth call of a shape


@dataclass
class System:
    """A model with decoding options, and its results."""

    name: str
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
    systems = [_load(each, arguments.device) for each in arguments.systems]
    for number in range(_WARM_UP + 1):
        for text in texts[: arguments.single]:
            for each in systems[:: 1 if number % 2 else -1]:
                each.translate_one(text, is_timed=number == _WARM_UP)
    for number in range(arguments.rounds + 1):
        for each in systems[:: 1 if number % 2 else -1]:
            each.translate_all(texts, arguments.batch)
    references = _read_lines(arguments.reference)[: arguments.lines] if arguments.reference else None
    for each in systems:
        print(json.dumps(_summarise(each, systems[0], references), ensure_ascii=False), flush=True)


def _summarise(system: System, first: System, references: Sequence[str] | None) -> dict[str, Any]:
    seconds, before = median(system.batch_seconds[1:]), median(first.batch_seconds[1:])  # the first round warms up
    pairs = zip(first.milliseconds, system.milliseconds, strict=True)
    found: dict[str, Any] = {
        "system": system.name,
        "ms_p50": round(median(system.milliseconds), 3),
        "ms_p95": round(quantiles(system.milliseconds, n=20)[-1], 3),
        "times_faster_alone": round(median(one / other for one, other in pairs), 3),
        "tokens_per_second": round(system.tokens / seconds),
        "times_faster_in_batches": round(before / seconds, 3),
        "same_as_first": sum(one == other for one, other in zip(system.texts, first.texts, strict=True)),
    }
    if references:
        words = [text.split() for text in system.texts]
        repeated = sum(one == other for line in words for one, other in pairwise(line))
        found |= {name: round(score(name, system.texts, references).value, 2) for name in ("bleu", "chrf")}
        found["repeated_percent"] = round(100 * repeated / max(1, sum(map(len, words))), 3)
    return found


def _load(text: str, device: str) -> System:
    name, _, rest = text.partition("=")
    folder, *pairs = rest.split(":")
    options: dict[str, Any] = {key: _parse(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    model, draft = attendo.load(folder, device), options.pop("draft", None)
    return System(name, model if draft is None else model.with_draft(attendo.load(draft, device)), options)


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
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lines", type=int, default=1000, help="sentences that are used")
    parser.add_argument("--single", type=int, default=200, help="sentences that are translated one at a time")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
