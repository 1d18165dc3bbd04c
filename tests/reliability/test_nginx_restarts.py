"""`deploy/nginx.conf` with two servers: clients see no error when one is restarted or killed."""

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
PAUSE = 0.2  # seconds between two requests of a client; nginx allows 20 per second

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("nginx") and shutil.which("openssl")), reason="nginx is not installed"),
]


class NginxProxy:
    """nginx with our configuration; only file names and ports are changed."""

    def __init__(self, folder: Path, ports: tuple[int, int]) -> None:
        self.port = free_port()
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
        subprocess.run(
            [*command, "-keyout", folder / "a.key", "-out", folder / "a.pem"], check=True, capture_output=True
        )
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
        temp_paths = "".join(
            f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/errors;\nevents {{}}\n"
            f"http {{ access_log off; {temp_paths} include {folder}/site.conf; }}\n",
            "utf-8",
        )
        command = ["nginx", "-e", str(folder / "errors"), "-c", str(folder / "nginx.conf")]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        self._process = subprocess.Popen(command)

    def send(self, path: str, content: Any = None) -> tuple[int, str]:
        connection = self._connection()
        try:
            self._send(connection, path, content)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def generate(self, number: int) -> tuple[int, str]:
        words = " ".join(SOURCES).split()
        text = f"{words[number % len(words)]} {words[number // len(words) % len(words)]}"
        return self.send("/api/v1/generate", {"texts": [text]})

    def stream(self, content: Any) -> Iterator[str]:
        """Yield lines as they arrive."""
        connection = self._connection()
        try:
            self._send(connection, "/v1/completions", content)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                yield line.decode()
        finally:
            connection.close()

    def close(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        assert self._process.wait(PATIENCE) == 0

    def _connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=context)

    def _send(self, connection: http.client.HTTPSConnection, path: str, content: Any) -> None:
        body = None if content is None else json.dumps(content)
        headers = {"host": NAME, "content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)


class Cluster:
    """nginx with two servers."""

    def __init__(self, children: Children, folder: Path) -> None:
        self._children, self._model = children, folder / "tiny"
        tiny_model().save(self._model)
        self._stack = ExitStack()
        self.services = [self._stack.enter_context(self.start()) for _ in range(2)]
        for service in self.services:
            service.wait_until_ready()
        self.proxy = NginxProxy(folder, (self.services[0].port, self.services[1].port))
        self._stack.callback(self.proxy.close)
        self.services[0].wait_until(lambda: self._is_reachable())

    def start(self, port: int | None = None) -> Service:
        slow = ("slow_steps", {"seconds": 0.02})
        return Service(self._children, self._model, *ALLOWED, port=port, before=[slow])

    def restart(self, index: int) -> None:
        """Start a server again on the same port."""
        self.services[index] = self._stack.enter_context(self.start(self.services[index].port))
        self.services[index].wait_until_ready()

    def close(self) -> None:
        self._stack.close()

    def _is_reachable(self) -> bool:
        try:
            return self.proxy.send("/health")[0] == 200
        except OSError:
            return False


@pytest.fixture
def cluster(children: Children, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(children, tmp_path)
    yield cluster
    cluster.close()


class Clients:
    """Clients that send one request after the other until they are stopped."""

    def __init__(self, proxy: NginxProxy, count: int = 3) -> None:
        self.answers: list[tuple[int, str]] = []
        self._proxy, self._stopped = proxy, threading.Event()
        self._threads = [threading.Thread(target=self._send_requests, args=(10 * each,)) for each in range(count)]
        for thread in self._threads:
            thread.start()

    def _send_requests(self, number: int) -> None:
        while not self._stopped.wait(PAUSE):
            number += 1
            self.answers.append(self._proxy.generate(number))

    def stop(self) -> list[tuple[int, str]]:
        self._stopped.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        return self.answers


def results(answer: Any) -> list[str]:
    return [result["text"] for result in answer["results"]]


def test_proxy_forwards_public_routes_only(cluster: Cluster) -> None:
    status, text = cluster.proxy.send("/api/v1/generate", {"texts": SOURCES})
    assert (status, results(json.loads(text))) == (200, results(cluster.services[0].generate(*SOURCES).content))
    assert [cluster.proxy.send(path)[0] for path in ("/metrics", "/livez", "/readyz")] == [404, 404, 404]
    assert cluster.proxy.send("/api/v1/generate", {"texts": ["a" * 1_100_000]})[0] == 413
    assert cluster.proxy.send("/health") == (200, '{"status":"ok"}')


def test_proxy_does_not_buffer_streams(cluster: Cluster) -> None:
    arrivals = [
        (time.monotonic(), line)
        for line in cluster.proxy.stream({"model": "tiny", "prompt": SOURCES[0], "stream": True, "max_tokens": 40})
        if line.startswith("data: ")
    ]
    assert arrivals[-1][1].strip() == "data: [DONE]"
    assert len(arrivals) > 3
    assert len({round(moment, 2) for moment, _ in arrivals}) > 2, "the stream arrived in one piece"


def test_rolling_restart_causes_no_errors(cluster: Cluster) -> None:
    clients = Clients(cluster.proxy)
    for index in range(2):
        cluster.services[index].kill(signal.SIGTERM)
        assert cluster.services[index].wait().code == 0
        cluster.restart(index)
    answers = clients.stop()
    assert len(answers) > 10
    assert {status for status, _ in answers} == {200}


def test_killed_server_is_skipped(cluster: Cluster) -> None:
    clients = Clients(cluster.proxy)
    cluster.services[0].wait_until(lambda: len(clients.answers) > 5)
    cluster.services[0].kill(signal.SIGKILL)
    cluster.services[0].wait()
    before = len(clients.answers)
    cluster.services[1].wait_until(lambda: len(clients.answers) > before + 10)
    assert {status for status, _ in clients.stop()} == {200}
