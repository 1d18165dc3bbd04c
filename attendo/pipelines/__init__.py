"""A task and a model in one call, as the pipelines of transformers 4 had it."""

from attendo.pipelines.asking import Pipeline
from attendo.pipelines.opening import pipeline

__all__ = ["Pipeline", "pipeline"]
