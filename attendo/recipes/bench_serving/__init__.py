"""How much does a server bear, and what do its clients see of it? Nothing here imports torch."""

from attendo.recipes.bench_serving.asking import Outcome
from attendo.recipes.bench_serving.comparison import Compared, Doing, Measured, Plan, compared, measured, ready
from attendo.recipes.bench_serving.load import Load
from attendo.recipes.bench_serving.loading import answers, loaded
from attendo.recipes.bench_serving.server import ServerError, Started, exported, started
from attendo.recipes.bench_serving.shapes import Api, shape_for
from attendo.recipes.bench_serving.summary import Spread, Summary
from attendo.recipes.bench_serving.texts import texts_of
from attendo.recipes.bench_serving.wire import Address, Question, Wire

__all__ = [
    "Address",
    "Api",
    "Compared",
    "Doing",
    "Load",
    "Measured",
    "Outcome",
    "Plan",
    "Question",
    "ServerError",
    "Spread",
    "Started",
    "Summary",
    "Wire",
    "answers",
    "compared",
    "exported",
    "loaded",
    "measured",
    "ready",
    "shape_for",
    "started",
    "texts_of",
]
