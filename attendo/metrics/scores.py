"""One function for every score of texts, each with a signature that says how it was computed."""

from collections.abc import Sequence

from attendo.errors import UsageError, require_package
from attendo.metrics import sacrebleu_scores, text_scores
from attendo.metrics.measure import (
    Metric,
    MetricValues,
    References,
    ReferenceSets,
    Score,
    make_metric_values,
    normalise_references,
)
from attendo.metrics.perplexity import PERPLEXITIES
from attendo.metrics.text_scores import DISTINCT_METRICS, distinct_ngrams
from attendo.settings import suggest_name

METRICS = (
    *("bleu", "chrf", "ter", "rouge1", "rouge2", "rougeL"),
    *("exact_match", "error_rate", "word_error_rate", *DISTINCT_METRICS),
)

_SACREBLEU_NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


def score(name: str, outputs: Sequence[str], references: References, *, tokenize: str | None = None) -> Score:
    """The score of all outputs together, each beside its reference, or beside several of which any is right.

    `tokenize` is sacrebleu's name of a tokeniser for BLEU. Unless given, the script of the references decides: `zh` for
    Chinese; `char` for Japanese and Korean, where sacrebleu's own need other packages, and for scripts without spaces
    such as Thai; else `13a`.
    """
    return compute_metric(name, outputs, references, tokenize=tokenize).score


def compute_metric(
    name: str, outputs: Sequence[str], references: References, *, tokenize: str | None = None
) -> MetricValues:
    """The same, and the scores of any of the lines: `compute_metric(...).by(labels)` has one for each label."""
    check_metric(name)
    if name in DISTINCT_METRICS:
        _check(name, tokenize, normalise_references(references), outputs)
        return distinct_ngrams(name, outputs)
    found = make_metric(name, references, tokenize, outputs)
    return make_metric_values(found, found.statistics(outputs))


def check_metric(name: str) -> None:
    """A name that is none, or a score that needs what is not installed, is a `UsageError`: ask before long work."""
    if name in PERPLEXITIES:
        raise UsageError("metric_needs_model", metric=name)
    if name not in METRICS:
        raise UsageError(
            "unknown_metric", name=name, suggestion=suggest_name(name, list(METRICS)), known=", ".join(METRICS)
        )
    if name in _SACREBLEU_NAMES:
        require_package("sacrebleu", "eval", _SACREBLEU_NAMES[name])


def check_comparable(name: str) -> None:
    """Lines drawn by chance must be like the text that they are drawn from."""
    if name in DISTINCT_METRICS:
        raise UsageError("metric_not_resamplable", metric=name)


def make_metric(name: str, references: References, tokenize: str | None, *outputs: Sequence[str]) -> Metric:
    """How to score outputs against these references; the outputs given must fit them, line by line."""
    check_metric(name)
    check_comparable(name)
    right = normalise_references(references)
    _check(name, tokenize, right, *outputs)
    match name:
        case "bleu":
            return sacrebleu_scores.bleu(right, tokenize)
        case "chrf":
            return sacrebleu_scores.chrf(right)
        case "ter":
            return sacrebleu_scores.ter(right)
        case "exact_match":
            return text_scores.exact_match(right)
        case "error_rate":
            return text_scores.error_rate(right)
        case "word_error_rate":
            return text_scores.word_error_rate(right)
        case _:
            return text_scores.rouge(name, right)


def _check(name: str, tokenize: str | None, references: ReferenceSets, *outputs: Sequence[str]) -> None:
    for each in outputs:
        _check_pairs(each, references)
    if tokenize is not None and name != "bleu":
        raise UsageError("tokenize_only_for_bleu", metric=name, tokeniser=tokenize)


def _check_pairs(outputs: Sequence[str], references: ReferenceSets) -> None:
    if isinstance(outputs, str):
        raise UsageError("metric_texts_not_list")
    if len(outputs) != len(references):
        raise UsageError("output_reference_count_mismatch", outputs=len(outputs), references=len(references))
    if not outputs:
        raise UsageError("no_outputs_to_score")
