"""TextModel: generation and scoring from text to text."""

from attendo.nn.devices import pick_device
from attendo.text_model.backends import Backend, ExportedFolder, eval_mode
from attendo.text_model.glossary import Glossary, Term
from attendo.text_model.options import GenerateOptions, NotANumberError, TooLongError
from attendo.text_model.parallel_trace import ParallelTrace
from attendo.text_model.results import (
    Alignment,
    Alternative,
    Hypothesis,
    HypothesisScore,
    Result,
    ScoredTarget,
    TermReport,
)
from attendo.text_model.text_model import TextModel, load
from attendo.text_model.trace import Trace

__all__ = [
    "Alignment",
    "Alternative",
    "Backend",
    "ExportedFolder",
    "GenerateOptions",
    "Glossary",
    "Hypothesis",
    "HypothesisScore",
    "NotANumberError",
    "ParallelTrace",
    "Result",
    "ScoredTarget",
    "Term",
    "TermReport",
    "TextModel",
    "TooLongError",
    "Trace",
    "eval_mode",
    "load",
    "pick_device",
]
