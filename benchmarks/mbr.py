"""Compares minimum Bayes risk decoding with beam search: chrF, BLEU and the significance of the difference.

    python benchmarks/mbr.py MODEL SOURCE REFERENCE [--candidates 32] [--lines 1000] [--json FILE]

The beam has 5 rows. Minimum Bayes risk chooses the candidate with the highest mean chrF against all candidates. The
candidates are beam hypotheses or samples: plain samples, samples at a lower temperature, and samples without improbable
tokens (min-p). The difference to the beam has a 95% interval of paired bootstrap samples, and a star if it is
significant at 0.05.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from attendo.data.bucketing import split_by_length
from attendo.data.corpus_files import read_lines
from attendo.metrics import Comparison, compare
from attendo.text_model import TextModel, load

BEAM = 5
METRICS = ("chrf", "bleu")
AT_ONCE = 256  # lines; a smaller number would leave a GPU partly idle

Options = dict[str, Any]


def main() -> None:
    given = _arguments()
    sources, references = (list(islice(read_lines(path), given.lines)) for path in (given.source, given.reference))
    model = load(given.model, given.device)
    print(f"{given.model}, {len(sources):,} lines, utility {given.utility}, {model.device}")
    print(
        f"{'':38} {'chrF':>6}  {'difference to the beam':26} {'BLEU':>6}  {'difference to the beam':26} {'seconds':>8}"
    )
    beam: list[str] = []
    for name, options in ways(given.utility, given.candidates):
        begin = time.perf_counter()
        texts = answers(model, sources, options)
        seconds = time.perf_counter() - begin
        beam = beam or texts
        compared = [compare(metric, texts, beam, references) for metric in METRICS]
        cells = "".join(_cells(each, is_beam=texts is beam) for each in compared)
        print(f"{name:38}{cells} {seconds:8.1f}", flush=True)
        if given.json is not None:
            with given.json.open("a", encoding="utf-8") as file:
                row = {"name": name, "options": options, "seconds": seconds, "compared": list(map(asdict, compared))}
                file.write(json.dumps(row) + "\n")
    print("\n".join(each.signature for each in compared))


def ways(utility: str, candidates: int) -> Iterator[tuple[str, Options]]:
    """Yield the plain beam first, because the others are compared with it."""
    yield f"beam {BEAM}", {"beam": BEAM}
    for width in dict.fromkeys((BEAM, candidates)):
        yield f"risk, all of a beam of {width}", {"beam": width, "mbr": utility}
    samples = {"sample": True, "mbr": utility, "mbr_candidates": candidates}
    yield f"risk, {candidates} samples", samples
    for name, value in (("temperature", 0.5), ("min_p", 0.02), ("min_p", 0.1)):
        yield f"risk, {candidates} samples, {name} {value}", {**samples, name: value}


def answers(model: TextModel, sources: Sequence[str], options: Options) -> list[str]:
    """Return the answers in the order of the sources."""
    texts: dict[int, str] = {}
    for group in split_by_length(sources, AT_ONCE):
        results = model.generate([sources[n] for n in group], **options)
        texts |= {n: result.text for n, result in zip(group, results, strict=True)}
    return [texts[n] for n in range(len(sources))]


def _cells(each: Comparison, is_beam: bool) -> str:
    low, high = each.interval
    star = "*" if each.significant else " "
    apart = "" if is_beam else f"{each.difference:+6.2f}{star} [{low:+.2f}, {high:+.2f}]"
    return f" {each.one.value:6.2f}  {apart:26}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--candidates", type=int, default=32, help="samples of a line, and rows of the wide beam")
    parser.add_argument("--utility", choices=METRICS, default="chrf")
    parser.add_argument("--lines", type=int, help="use only this number of lines, from the start of the files")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="append one JSON line per row of the table to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
