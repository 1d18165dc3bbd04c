"""One function for every score, each with a signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from attendo.errors import UsageError
from attendo.metrics import own_measures, sacrebleu_measures
from attendo.metrics.measure import Measure, Statistics
from attendo.settings import nearest

METRICS = ("bleu", "chrf", "ter", "rouge1", "rouge2", "rougeL", "exact_match", "word_error_rate")

_FROM_SACREBLEU = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


@dataclass(frozen=True)
class Score:
    """A number on the scale of 0 to 100 (TER and the word error rate may be higher) and how it came about."""

    name: str
    value: float
    signature: str
    higher_is_better: bool


def score(name: str, outputs: Sequence[str], references: Sequence[str], *, tokenize: str | None = None) -> Score:
    """The score of all outputs together, each beside its reference.

    `tokenize` is sacrebleu's name of a tokeniser for BLEU. Unless given, the script of the references decides: `zh` for
    Chinese; `char` for Japanese and Korean, where sacrebleu's own need other packages, and for scripts without spaces
    such as Thai; else `13a`.
    """
    found = measure(name, references, tokenize, outputs)
    return score_of(found, found.statistics(outputs))


def check_metric(name: str) -> None:
    """A name that is none, or a score that needs what is not installed, is a `UsageError`: ask before long work."""
    if name not in METRICS:
        raise UsageError(f"unknown metric {name}{nearest(name, list(METRICS))}: use {', '.join(METRICS)}")
    if name in _FROM_SACREBLEU and find_spec("sacrebleu") is None:
        raise UsageError(f"{_FROM_SACREBLEU[name]} needs sacrebleu: pip install 'attendo[eval]'")


def score_of(found: Measure, statistics: Statistics) -> Score:
    sums = [sum(column) for column in zip(*statistics, strict=True)]
    return Score(found.name, found.value(sums), found.signature, found.higher_is_better)


def measure(name: str, references: Sequence[str], tokenize: str | None, *outputs: Sequence[str]) -> Measure:
    """How to score outputs against these references; the outputs given must fit them, line by line."""
    check_metric(name)
    for each in outputs:
        _check_pairs(each, references)
    if tokenize is not None and name != "bleu":
        raise UsageError(f"tokenize is for bleu: {name} has no use for {tokenize}")
    match name:
        case "bleu":
            return sacrebleu_measures.bleu(references, tokenize)
        case "chrf":
            return sacrebleu_measures.chrf(references)
        case "ter":
            return sacrebleu_measures.ter(references)
        case "exact_match":
            return own_measures.exact_match(references)
        case "word_error_rate":
            return own_measures.word_error_rate(references)
        case _:
            return own_measures.rouge(name, references)


def _check_pairs(outputs: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(outputs, str) or isinstance(references, str):
        raise UsageError("lists of texts are needed: write [text] for a single one")
    if len(outputs) != len(references):
        raise UsageError(f"each output needs its reference: {len(outputs)} outputs and {len(references)} references")
    if not outputs:
        raise UsageError("there is nothing to score: give at least one output and its reference")
