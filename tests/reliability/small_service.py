"""A server in a separate process, and concurrent clients."""

import http.client
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from children import Children, Ended, Job
from serving_faults import MARK
from tiny import SOURCES

PATIENCE = 240.0  # seconds; only a hang reaches it
LONG = {"min_length": 100, "max_length": 100}
# Limits that a busy machine never reaches. A test of a limit sets it.
_TIME_LIMITS = ("max_queue_seconds", "watchdog_seconds", "drain_seconds", "body_timeout")
LONG_LIMITS = ("--deadline", "600", *(f"--set={name}=600" for name in _TIME_LIMITS))


@dataclass(frozen=True)
class Response:
    """A response. `status` is 0 if the connection was refused or closed."""

    status: int
    content: Any = None
    request_id: str = ""

    @property
    def code(self) -> str:
        error = self.content.get("error")
        return str(self.content["detail"] if error is None else error["code"])  # DeepL's format, or our own


class Service:
    """`attendo serve`, on the given port or on one chosen by the system."""

    def __init__(
        self,
        children: Children,
        folder: Path,
        *options: str,
        port: int | None = None,
        before: Sequence[Job] = (),
        **environment: str,
    ) -> None:
        self._port = port
        arguments = ("serve", folder, "--port", str(port or 0), *LONG_LIMITS, *options)
        self._child = children.start_attendo(*arguments, before=before, **environment)
        self._ended: Ended | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def port(self) -> int:
        """The given port, or the one that the server prints when it listens."""
        if self._port is None:
            address = re.compile(rb"^http://\S+?:(\d+)/?\n", re.MULTILINE)
            self.wait_until(lambda: address.search(self._child.output.read_bytes()))
            (port,) = address.findall(self._child.output.read_bytes())
            self._port = int(port)
        return self._port

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._ended is None:
            self.kill(signal.SIGKILL)
            self.wait()

    def get(self, path: str) -> Response:
        return self._send("GET", path, None)

    def generate(self, *texts: str, **options: Any) -> Response:
        return self._send("POST", "/api/v1/generate", {"texts": texts or SOURCES[:1], **options})

    def upload(self, text: str) -> Response:
        """Upload a document as DeepL's clients do."""
        head = "Content-Disposition: form-data; name="
        parts = [f'{head}"target_lang"\r\n\r\nZH', f'{head}"file"; filename="a.txt"\r\n\r\n{text}']
        body = "".join(f"--part\r\n{each}\r\n" for each in parts) + "--part--\r\n"
        return self._send("POST", "/v2/document", body, "multipart/form-data; boundary=part")

    def document_request(self, given: Response, endpoint: str = "") -> Response:
        """Request the status of an uploaded document, or another of its endpoints."""
        key = {"document_key": given.content["document_key"]}
        return self._send("POST", f"/v2/document/{given.content['document_id']}{endpoint}", key)

    def trigger_fault(self) -> Response:
        """A request that triggers the installed fault."""
        return self.generate(max_length=MARK, min_length=MARK)

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: self.get("/readyz").status == 200)

    def wait_for_requests(self, count: int) -> None:
        """Wait until this many requests are running or queued."""
        self.wait_until(lambda: self._sum("(?:running|waiting)_requests") == count)

    def wait_until_batch_is_empty(self) -> None:
        self.wait_until(lambda: self._sum("batch_size") == 0)

    def _sum(self, gauge: str) -> float:
        numbers = re.findall(rf"^attendo_{gauge}(?:{{\S*)? (\S+)$", self.get("/metrics").content, re.MULTILINE)
        assert numbers
        return sum(map(float, numbers))

    def wait_until(self, condition: Any) -> None:
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() - begin < PATIENCE, "the condition did not become true in time"
            time.sleep(0.01)

    def kill(self, number: int) -> None:
        self._child.kill(number)

    def wait(self) -> Ended:
        self._ended = self._ended or self._child.wait()
        return self._ended

    def _send(self, method: str, path: str, payload: Any, kind: str = "application/json") -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            body = payload if payload is None or isinstance(payload, str) else json.dumps(payload)
            connection.request(method, path, body, {"content-type": kind})
            response = connection.getresponse()
            text = response.read().decode()
            is_json = response.headers.get_content_type() == "application/json"
            content = json.loads(text) if is_json else text
            return Response(response.status, content, response.headers.get("x-request-id", ""))
        except (OSError, http.client.HTTPException):
            return Response(0)
        finally:
            connection.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class ConcurrentRequests:
    """Concurrent requests, each in its own thread."""

    def __init__(self, service: Service, requests: Sequence[dict[str, Any]]) -> None:
        self._responses: dict[int, Response] = {}
        self._threads = [
            threading.Thread(target=self._send_one, args=(service, number, request), daemon=True)
            for number, request in enumerate(requests)
        ]
        for thread in self._threads:
            thread.start()

    def _send_one(self, service: Service, number: int, request: dict[str, Any]) -> None:
        self._responses[number] = service.generate(*request.pop("texts"), **request)

    def responses(self) -> list[Response]:
        """Wait for all responses and return them in the order of the requests."""
        for thread in self._threads:
            thread.join(PATIENCE)
        assert len(self._responses) == len(self._threads)
        return [self._responses[number] for number in sorted(self._responses)]


def distinct_requests(count: int, **options: Any) -> list[dict[str, Any]]:
    """Distinct requests, because equal concurrent ones share one computation."""
    words = " ".join(SOURCES).split()
    return [{"texts": [f"{words[n % len(words)]} {words[n // len(words)]}"], **options} for n in range(count)]
