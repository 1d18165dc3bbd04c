"""Scores of whole texts: how near the outputs come to their references."""

from attendo.metrics.scores import METRICS, Score, check_metric, score

__all__ = ["METRICS", "Score", "check_metric", "score"]
