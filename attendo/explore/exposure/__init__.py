"""Exposure bias: how a model's predictions change if its prefix is not the reference (docs/exposure-bias.md)."""

from attendo.explore.exposure.measures import (
    AccuracyByPosition,
    DistractorGap,
    ExcessError,
    ExposureReport,
    PrecisionByQuarter,
    Recovery,
)
from attendo.explore.exposure.parallel_text import ParallelText
from attendo.explore.exposure.run_measures import ExposureSettings, measure_exposure

__all__ = [
    "AccuracyByPosition",
    "DistractorGap",
    "ExcessError",
    "ExposureReport",
    "ExposureSettings",
    "ParallelText",
    "PrecisionByQuarter",
    "Recovery",
    "measure_exposure",
]
