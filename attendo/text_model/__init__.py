"""Text in, text out."""

from attendo.text_model.model import TextModel, load
from attendo.text_model.networks import evaluating, pick_device
from attendo.text_model.results import Alignment, Alternative, Hypothesis, Result, Score, ScoredTarget, Trace
from attendo.text_model.splitting import TooLongError
from attendo.text_model.wishes import Wishes

__all__ = [
    "Alignment",
    "Alternative",
    "Hypothesis",
    "Result",
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
