"""Scores of whole texts: how near the outputs come to their references, and which of two come nearer."""

from attendo.metrics.comparison import Comparison, compare
from attendo.metrics.scores import METRICS, Score, check_metric, score

__all__ = ["METRICS", "Comparison", "Score", "check_metric", "compare", "score"]
