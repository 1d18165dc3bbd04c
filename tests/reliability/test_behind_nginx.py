"""`deploy/nginx.conf` as it is, with two servers behind it: nobody notices that one is restarted, or that it died."""

import http.client
import json
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from children import Children
from small_service import PATIENCE, Service, free_port
from tiny import SOURCES, tiny_model

NAME = "translate.example.org"
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
ALLOWED = ("--allow-host", NAME)
PAUSE = 0.2  # seconds between two requests of one who asks: nginx lets 20 a second through

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("nginx") and shutil.which("openssl")), reason="nginx is not installed"),
]


class Front:
    """nginx on a port of its own, by our file: only names of files and ports are others."""

    def __init__(self, folder: Path, ports: tuple[int, int]) -> None:
        self.port = free_port()
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
        subprocess.run([*made, "-keyout", folder / "a.key", "-out", folder / "a.pem"], check=True, capture_output=True)
        text = CONFIGURATION.read_text("utf-8")
        for old, new in (
            ("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
            (f"/etc/ssl/{NAME}.", f"{folder}/a."),
            ("127.0.0.1:8801", f"127.0.0.1:{ports[0]}"),
            ("127.0.0.1:8802", f"127.0.0.1:{ports[1]}"),
        ):
            assert old in text
            text = text.replace(old, new)
        (folder / "site.conf").write_text(text, "utf-8")
        places = "".join(
            f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/errors;\nevents {{}}\n"
            f"http {{ access_log off; {places} include {folder}/site.conf; }}\n",
            "utf-8",
        )
        command = ["nginx", "-e", str(folder / "errors"), "-c", str(folder / "nginx.conf")]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        self._process = subprocess.Popen(command)

    def ask(self, path: str, content: Any = None) -> tuple[int, str]:
        connection = self._connection()
        try:
            self._send(connection, path, content)
            answered = connection.getresponse()
            return answered.status, answered.read().decode()
        finally:
            connection.close()

    def generate(self, number: int) -> tuple[int, str]:
        words = " ".join(SOURCES).split()
        text = f"{words[number % len(words)]} {words[number // len(words) % len(words)]}"
        return self.ask("/api/v1/generate", {"texts": [text]})

    def stream(self, content: Any) -> Iterator[str]:
        """Lines as they come."""
        connection = self._connection()
        try:
            self._send(connection, "/v1/completions", content)
            answered = connection.getresponse()
            assert answered.status == 200, answered.read()
            for line in answered:
                yield line.decode()
        finally:
            connection.close()

    def close(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        assert self._process.wait(PATIENCE) == 0

    def _connection(self) -> http.client.HTTPSConnection:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=trusting)

    def _send(self, connection: http.client.HTTPSConnection, path: str, content: Any) -> None:
        body = None if content is None else json.dumps(content)
        headers = {"host": NAME, "content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)


class House:
    """Two servers and nginx."""

    def __init__(self, children: Children, folder: Path) -> None:
        self._children, self._model = children, folder / "tiny"
        tiny_model().save(self._model)
        self._stack = ExitStack()
        self.services = [self._stack.enter_context(self.start()) for _ in range(2)]
        for service in self.services:
            service.until_ready()
        self.front = Front(folder, (self.services[0].port, self.services[1].port))
        self._stack.callback(self.front.close)
        self.services[0].until(lambda: self._answers())

    def start(self, port: int | None = None) -> Service:
        slow = ("slow_steps", {"seconds": 0.02})
        return Service(self._children, self._model, *ALLOWED, port=port, before=[slow])

    def renew(self, which: int) -> None:
        """The same server again, where it was."""
        self.services[which] = self._stack.enter_context(self.start(self.services[which].port))
        self.services[which].until_ready()

    def close(self) -> None:
        self._stack.close()

    def _answers(self) -> bool:
        try:
            return self.front.ask("/health")[0] == 200
        except OSError:
            return False


@pytest.fixture
def house(children: Children, tmp_path: Path) -> Iterator[House]:
    made = House(children, tmp_path)
    yield made
    made.close()


class Crowd:
    """Some who ask one after the other until they are told to stop."""

    def __init__(self, front: Front, people: int = 3) -> None:
        self.answers: list[tuple[int, str]] = []
        self._front, self._enough = front, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(10 * each,)) for each in range(people)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        while not self._enough.wait(PAUSE):
            number += 1
            self.answers.append(self._front.generate(number))

    def enough(self) -> list[tuple[int, str]]:
        self._enough.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        return self.answers


def results(answer: Any) -> list[str]:
    return [result["text"] for result in answer["results"]]


def test_what_is_for_everybody_comes_through_and_the_rest_does_not(house: House) -> None:
    status, text = house.front.ask("/api/v1/generate", {"texts": SOURCES})
    assert (status, results(json.loads(text))) == (200, results(house.services[0].generate(*SOURCES).content))
    assert [house.front.ask(path)[0] for path in ("/metrics", "/livez", "/readyz")] == [404, 404, 404]
    assert house.front.ask("/api/v1/generate", {"texts": ["a" * 1_100_000]})[0] == 413
    assert house.front.ask("/health") == (200, '{"status":"ok"}')


def test_a_stream_comes_bit_by_bit(house: House) -> None:
    came = [
        (time.monotonic(), line)
        for line in house.front.stream({"model": "tiny", "prompt": SOURCES[0], "stream": True, "max_tokens": 40})
        if line.startswith("data: ")
    ]
    assert came[-1][1].strip() == "data: [DONE]"
    assert len(came) > 3
    assert len({round(moment, 2) for moment, _ in came}) > 2, "all of it came at once"


def test_one_after_the_other_is_restarted_and_nobody_notices(house: House) -> None:
    crowd = Crowd(house.front)
    for which in range(2):
        house.services[which].kill(signal.SIGTERM)
        assert house.services[which].wait().code == 0
        house.renew(which)
    answers = crowd.enough()
    assert len(answers) > 10
    assert {status for status, _ in answers} == {200}


def test_one_that_is_killed_is_left_out(house: House) -> None:
    crowd = Crowd(house.front)
    house.services[0].until(lambda: len(crowd.answers) > 5)
    house.services[0].kill(signal.SIGKILL)
    house.services[0].wait()
    before = len(crowd.answers)
    house.services[1].until(lambda: len(crowd.answers) > before + 10)
    assert {status for status, _ in crowd.enough()} == {200}
