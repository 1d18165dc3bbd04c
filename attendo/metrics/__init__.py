"""Scores of whole texts: how near the outputs come to their references, and which of two come nearer."""

from attendo.metrics.measure import Measured, Score
from attendo.metrics.perplexity import PERPLEXITIES, Likelihoods, likelihoods, perplexity
from attendo.metrics.scores import METRICS, check_comparable, check_metric, score, scored
from attendo.metrics.significance import Comparison, compare, compare_perplexity

__all__ = [
    "METRICS",
    "PERPLEXITIES",
    "Comparison",
    "Likelihoods",
    "Measured",
    "Score",
    "check_comparable",
    "check_metric",
    "compare",
    "compare_perplexity",
    "likelihoods",
    "perplexity",
    "score",
    "scored",
]
