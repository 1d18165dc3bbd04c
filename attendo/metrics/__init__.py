"""Corpus metrics of outputs against references, perplexity, and significance tests between two systems."""

from attendo.metrics.measure import MetricValues, Score
from attendo.metrics.perplexity import PERPLEXITIES, Likelihoods, compute_likelihoods, perplexity
from attendo.metrics.scores import METRICS, check_comparable, check_metric, compute_metric, score
from attendo.metrics.significance import Comparison, compare, compare_perplexity

__all__ = [
    "METRICS",
    "PERPLEXITIES",
    "Comparison",
    "Likelihoods",
    "MetricValues",
    "Score",
    "check_comparable",
    "check_metric",
    "compare",
    "compare_perplexity",
    "compute_likelihoods",
    "compute_metric",
    "perplexity",
    "score",
]
