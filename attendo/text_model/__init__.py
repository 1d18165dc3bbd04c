"""Text in, text out."""

from attendo.text_model.backends import ExportedFolder, Runtime
from attendo.text_model.options import NotANumberError, TooLongError, Wishes
from attendo.text_model.results import Alignment, Alternative, Hypothesis, Result, Score, ScoredTarget
from attendo.text_model.search_setup import evaluating, pick_device
from attendo.text_model.text_model import TextModel, load
from attendo.text_model.trace import Trace

__all__ = [
    "Alignment",
    "Alternative",
    "ExportedFolder",
    "Hypothesis",
    "NotANumberError",
    "Result",
    "Runtime",
    "Score",
    "ScoredTarget",
    "TextModel",
    "TooLongError",
    "Trace",
    "Wishes",
    "evaluating",
    "load",
    "pick_device",
]
