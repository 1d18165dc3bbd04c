"""A task and a model in one call, as the pipelines of transformers 4 had it."""

from attendo.pipelines.text_pipeline import Pipeline, pipeline

__all__ = ["Pipeline", "pipeline"]
