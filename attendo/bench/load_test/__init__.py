"""Load tests of a server: throughput, latency and rejections as clients see them. Does not import torch."""

from attendo.bench.load_test.apis import Api, make_adapter
from attendo.bench.load_test.http_client import Address, HttpClient, HttpRequest
from attendo.bench.load_test.load import Load, RequestOutcome, request_all, run_load
from attendo.bench.load_test.report import (
    ConsistencyResult,
    LatencyStats,
    LoadMeasurement,
    LoadSummary,
    LoadTestPlan,
    check_consistency,
    run_load_test,
    wait_until_ready,
)
from attendo.bench.load_test.server import RunningServer, ServerError, export_temporarily, load_texts, start_server

__all__ = [
    "Address",
    "Api",
    "ConsistencyResult",
    "HttpClient",
    "HttpRequest",
    "LatencyStats",
    "Load",
    "LoadMeasurement",
    "LoadSummary",
    "LoadTestPlan",
    "RequestOutcome",
    "RunningServer",
    "ServerError",
    "check_consistency",
    "export_temporarily",
    "load_texts",
    "make_adapter",
    "request_all",
    "run_load",
    "run_load_test",
    "start_server",
    "wait_until_ready",
]
