"""How much does a server bear, and what do its clients see of it? Nothing here imports torch."""

from attendo.bench.load_test.apis import Api, shape_for
from attendo.bench.load_test.http_client import Address, Question, Wire
from attendo.bench.load_test.load import Load, Outcome, answers, loaded
from attendo.bench.load_test.report import (
    ConsistencyResult,
    Doing,
    LoadMeasurement,
    LoadTestPlan,
    Spread,
    Summary,
    compared,
    measured,
    ready,
)
from attendo.bench.load_test.server import ServerError, Started, exported, started, texts_of

__all__ = [
    "Address",
    "Api",
    "ConsistencyResult",
    "Doing",
    "Load",
    "LoadMeasurement",
    "LoadTestPlan",
    "Outcome",
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
