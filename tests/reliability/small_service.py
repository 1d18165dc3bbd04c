"""A server in a process of its own, and those who ask it."""

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

PATIENCE = 240.0  # seconds, of a test that waits for something that must come: only a hang takes so long
LONG = {"min_length": 100, "max_length": 100}
# Limits that a busy machine never reaches. A test of a limit sets it.
_TIMES = ("max_queue_seconds", "watchdog_seconds", "drain_seconds", "body_timeout")
UNHURRIED = ("--deadline", "600", *(f"--set={name}=600" for name in _TIMES))


@dataclass(frozen=True)
class Answered:
    """`status` is 0 where the connection was refused or cut."""

    status: int
    content: Any = None
    request_id: str = ""

    @property
    def code(self) -> str:
        told = self.content.get("error")
        return str(self.content["detail"] if told is None else told["code"])  # DeepL's, or our own


class Service:
    """`attendo serve`, on a port that the system chooses unless one is given."""

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
        arguments = ("serve", folder, "--port", str(port or 0), *UNHURRIED, *options)
        self._child = children.start_attendo(*arguments, before=before, **environment)
        self._ended: Ended | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def port(self) -> int:
        """Where none was given, the one that it announces when it listens."""
        if self._port is None:
            address = re.compile(rb"^http://\S+?:(\d+)/?\n", re.MULTILINE)
            self.until(lambda: address.search(self._child.output.read_bytes()))
            (port,) = address.findall(self._child.output.read_bytes())
            self._port = int(port)
        return self._port

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._ended is None:
            self.kill(signal.SIGKILL)
            self.wait()

    def get(self, path: str) -> Answered:
        return self._ask("GET", path, None)

    def generate(self, *texts: str, **options: Any) -> Answered:
        return self._ask("POST", "/api/v1/generate", {"texts": texts or SOURCES[:1], **options})

    def upload(self, text: str) -> Answered:
        """A document, as DeepL's clients bring one."""
        head = "Content-Disposition: form-data; name="
        parts = [f'{head}"target_lang"\r\n\r\nZH', f'{head}"file"; filename="a.txt"\r\n\r\n{text}']
        body = "".join(f"--part\r\n{each}\r\n" for each in parts) + "--part--\r\n"
        return self._ask("POST", "/v2/document", body, "multipart/form-data; boundary=part")

    def asked_after(self, given: Answered, what: str = "") -> Answered:
        """A document that was brought."""
        key = {"document_key": given.content["document_key"]}
        return self._ask("POST", f"/v2/document/{given.content['document_id']}{what}", key)

    def marked(self) -> Answered:
        """A request that the fault strikes, if there is one."""
        return self.generate(max_length=MARK, min_length=MARK)

    def until_ready(self) -> None:
        self.until(lambda: self.get("/readyz").status == 200)

    def until_there(self, count: int) -> None:
        """So many are being answered, or wait for it."""
        self.until(lambda: self._sum("(?:running|waiting)_requests") == count)

    def until_nothing_is_computed(self) -> None:
        self.until(lambda: self._sum("batch_size") == 0)

    def _sum(self, gauge: str) -> float:
        numbers = re.findall(rf"^attendo_{gauge}(?:{{\S*)? (\S+)$", self.get("/metrics").content, re.MULTILINE)
        assert numbers
        return sum(map(float, numbers))

    def until(self, fact: Any) -> None:
        begin = time.monotonic()
        while not fact():
            assert time.monotonic() - begin < PATIENCE, "it never came to be so"
            time.sleep(0.01)

    def kill(self, number: int) -> None:
        self._child.kill(number)

    def wait(self) -> Ended:
        self._ended = self._ended or self._child.wait()
        return self._ended

    def _ask(self, method: str, path: str, content: Any, kind: str = "application/json") -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            body = content if content is None or isinstance(content, str) else json.dumps(content)
            connection.request(method, path, body, {"content-type": kind})
            answered = connection.getresponse()
            text = answered.read().decode()
            is_json = answered.headers.get_content_type() == "application/json"
            told = json.loads(text) if is_json else text
            return Answered(answered.status, told, answered.headers.get("x-request-id", ""))
        except (OSError, http.client.HTTPException):
            return Answered(0)
        finally:
            connection.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Asking:
    """Several who ask at once, each in a thread of its own."""

    def __init__(self, service: Service, requests: Sequence[dict[str, Any]]) -> None:
        self._answers: dict[int, Answered] = {}
        self._threads = [
            threading.Thread(target=self._ask, args=(service, number, request), daemon=True)
            for number, request in enumerate(requests)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, service: Service, number: int, request: dict[str, Any]) -> None:
        self._answers[number] = service.generate(*request.pop("texts"), **request)

    def answers(self) -> list[Answered]:
        """When all have come, in the order of the requests."""
        for thread in self._threads:
            thread.join(PATIENCE)
        assert len(self._answers) == len(self._threads)
        return [self._answers[number] for number in sorted(self._answers)]


def different(count: int, **options: Any) -> list[dict[str, Any]]:
    """Requests of which no two are the same: those would be answered once."""
    words = " ".join(SOURCES).split()
    return [{"texts": [f"{words[n % len(words)]} {words[n // len(words)]}"], **options} for n in range(count)]
