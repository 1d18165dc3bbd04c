"""Prometheus metrics. They contain no texts, addresses or keys."""

import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from attendo.serve.http.access_log import AccessLogEntry, current_request

CLIENT_CLOSED_REQUEST = 499  # status if the client disconnects before the response, as in nginx
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 8.0, 10.0, 30.0)


class ServerMetrics:
    """Metrics of one application; thread-safe. Each application has its own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter("attendo_requests", "Requests answered", ["route", "status"], registry=registry)
        self._seconds = _make_histogram(
            "attendo_request_seconds", "From the first byte to the last", registry, ["route"]
        )
        self._in_flight = Gauge("attendo_in_flight_requests", "Requests that are being answered", registry=registry)
        self._source = Counter("attendo_source_tokens", "Tokens read", ["model"], registry=registry)
        self._target = Counter("attendo_target_tokens", "Tokens written", ["model"], registry=registry)
        self._checked = Counter("attendo_checked", "Answers checked for faults", ["model"], registry=registry)
        self._faults = Counter("attendo_faults", "Faults of answers, by kind", ["model", "kind"], registry=registry)
        self._repaired = Counter("attendo_repaired", "Answers replaced by others", ["model"], registry=registry)
        self._first_token = _make_histogram("attendo_first_token_seconds", "Until a stream began to tell", registry)
        self._queue = _make_histogram("attendo_queue_seconds", "Until a request had its first step", registry)
        self._decoding = _make_histogram("attendo_decoding_seconds", "From the first step to the last", registry)
        self._cancelled = Counter("attendo_cancelled", "Requests whose client left unanswered", registry=registry)
        self._rejected = Counter("attendo_rejected", "Requests refused, by reason", ["reason"], registry=registry)

    def observe_request(self, entry: AccessLogEntry) -> None:
        """Record a finished request. Its route is a path template: the number of labels must be bounded."""
        self._requests.labels(entry.route, str(entry.status)).inc()
        self._seconds.labels(entry.route).observe(entry.seconds)
        if entry.status == CLIENT_CLOSED_REQUEST:
            self._cancelled.inc()
        elif entry.refused:
            self._rejected.labels(entry.refused).inc()

    @contextmanager
    def track_in_flight(self) -> Iterator[None]:
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()

    def count_tokens(self, model: str, source: int, target: int) -> None:
        """Count tokens in the metrics and in the access log entry."""
        self._source.labels(model).inc(source)
        self._target.labels(model).inc(target)
        if (entry := current_request.get()) is not None:
            entry.source_tokens += source
            entry.target_tokens += target

    def count_faults(self, model: str, kinds: Sequence[str], repaired: bool) -> None:
        """Count a checked answer with its faults."""
        self._checked.labels(model).inc()
        self._repaired.labels(model).inc(repaired)
        for kind in kinds:
            self._faults.labels(model, kind).inc()

    def observe_first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def observe_times(self, queue: float, decoding: float) -> None:
        """Record the seconds of a finished request."""
        self._queue.observe(queue)
        self._decoding.observe(decoding)


def resident_bytes() -> int:
    """Return the resident memory or, without /proc, its maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _make_histogram(name: str, description: str, registry: CollectorRegistry, labels: Sequence[str] = ()) -> Histogram:
    return Histogram(name, description, labels, registry=registry, buckets=_BUCKETS)
