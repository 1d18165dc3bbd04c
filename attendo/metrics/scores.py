"""Computes text metrics by name. Every score has a signature of its settings."""

from collections.abc import Callable, Sequence
from functools import partial

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
    """Return the corpus score of the outputs. Each line has one reference or several.

    `tokenize` is the name of a sacrebleu tokenizer for BLEU. The default depends on the script of the references: `zh`
    for Chinese, `char` for Japanese, Korean and scripts without spaces such as Thai, else `13a`. sacrebleu's Japanese
    and Korean tokenizers need other packages.
    """
    return compute_metric(name, outputs, references, tokenize=tokenize).score


def compute_metric(
    name: str, outputs: Sequence[str], references: References, *, tokenize: str | None = None
) -> MetricValues:
    """Return the scores of all lines and of any subset. `score_by_label(labels)` has one score per label."""
    check_metric(name)
    if name in DISTINCT_METRICS:
        _check(name, tokenize, normalise_references(references), outputs)
        return distinct_ngrams(name, outputs)
    found = make_metric(name, references, tokenize, outputs)
    return make_metric_values(found, found.statistics(outputs))


def check_metric(name: str) -> None:
    """Raise `UsageError` for an unknown metric or a missing package. Call this before long work."""
    if name in PERPLEXITIES:
        raise UsageError("metric_needs_model", metric=name)
    if name not in METRICS:
        raise UsageError(
            "unknown_metric", name=name, suggestion=suggest_name(name, list(METRICS)), known=", ".join(METRICS)
        )
    if name in _SACREBLEU_NAMES:
        require_package("sacrebleu", "eval", _SACREBLEU_NAMES[name])


def check_comparable(name: str) -> None:
    """Raise `UsageError` for distinct-n, which resampling with replacement changes."""
    if name in DISTINCT_METRICS:
        raise UsageError("metric_not_resamplable", metric=name)


def make_metric(name: str, references: References, tokenize: str | None, *outputs: Sequence[str]) -> Metric:
    """Return the metric for these references. Raise `UsageError` if the number of outputs differs."""
    check_metric(name)
    check_comparable(name)
    right = normalise_references(references)
    _check(name, tokenize, right, *outputs)
    if name == "bleu":
        return sacrebleu_scores.bleu(right, tokenize)
    return _METRIC_MAKERS[name](right)


_METRIC_MAKERS: dict[str, Callable[[ReferenceSets], Metric]] = {
    "chrf": sacrebleu_scores.chrf,
    "ter": sacrebleu_scores.ter,
    "exact_match": text_scores.exact_match,
    "error_rate": text_scores.error_rate,
    "word_error_rate": text_scores.word_error_rate,
    **{name: partial(text_scores.rouge, name) for name in ("rouge1", "rouge2", "rougeL")},
}


def _check(name: str, tokenize: str | None, references: ReferenceSets, *outputs: Sequence[str]) -> None:
    for each in outputs:
        if isinstance(each, str):
            raise UsageError("metric_texts_not_list")
        if len(each) != len(references):
            raise UsageError("output_reference_count_mismatch", outputs=len(each), references=len(references))
        if not each:
            raise UsageError("no_outputs_to_score")
    if tokenize is not None and name != "bleu":
        raise UsageError("tokenize_only_for_bleu", metric=name, tokeniser=tokenize)
