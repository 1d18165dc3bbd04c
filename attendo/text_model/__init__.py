"""Text in, text out."""

from attendo.text_model.faults import NotANumberError, TooLongError
from attendo.text_model.model import TextModel, load
from attendo.text_model.networks import evaluating, pick_device
from attendo.text_model.results import Alignment, Alternative, Hypothesis, Result, Score, ScoredTarget
from attendo.text_model.runtimes import ExportedFolder, Runtime
from attendo.text_model.trace import Trace
from attendo.text_model.wishes import Wishes

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
