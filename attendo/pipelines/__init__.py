"""Pipelines: a task and a model in one call, as in transformers 4."""

from attendo.pipelines.text_pipeline import Pipeline, pipeline

__all__ = ["Pipeline", "pipeline"]
