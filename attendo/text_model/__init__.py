"""Text in, text out."""

from attendo.text_model.model import TextModel, evaluating, load, pick_device
from attendo.text_model.results import Hypothesis, Result, Score, Trace

__all__ = ["Hypothesis", "Result", "Score", "TextModel", "Trace", "evaluating", "load", "pick_device"]
