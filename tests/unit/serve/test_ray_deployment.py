"""The server as a deployment of Ray Serve."""

import json
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from small_server import TEXT, random_model
from starlette.testclient import TestClient
from tiny import PATIENCE

from attendo.errors import ModelError, UsageError
from attendo.serve import ray_serve
from attendo.serve.ray_serve import HealthCheckMixin, RayServeArguments, app_factory, application, deployment
from attendo.serve.scheduling.monitoring import Watchdog
from attendo.serve.settings import LOOPBACK, ServeSettings

# Runs in its own process, because Ray leaves threads, files and warnings.
WITH_RAY = """
import json, os, sys, time, urllib.request
from pathlib import Path
import ray
from ray import serve
from attendo.serve import ray_serve
from attendo.serve.ray_serve import RayServeArguments, application

def with_fatal_request(build):
    # In each replica, a request with this max_length ends the thread that runs it.
    def built():
        from attendo.decode.continuous_batch import ContinuousBatch

        original = ContinuousBatch.step

        def step(self, waiting):
            if any(each is not None and each.max_length == 13 for each in (*self._requests, *waiting)):
                raise SystemExit
            return original(self, waiting)

        ContinuousBatch.step = step
        return build()

    return built

builder = ray_serve.app_factory
ray_serve.app_factory = lambda *arguments: with_fatal_request(builder(*arguments))
os.environ["ATTENDO_KEYS"] = "key-of-this-test"
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(application(RayServeArguments(models=sys.argv[1], replicas=2, languages="en-zh", limits="max_texts=3")))

def send(path, fields=None, host=None, key="key-of-this-test"):
    body = None if fields is None else json.dumps(fields).encode()
    headers = {"content-type": "application/json", "x-api-key": key, **({"host": host} if host else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[2]}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 599, ""

message = {"role": "user", "content": sys.argv[3]}
name = json.loads(send("/v1/models")[1])["data"][0]["id"]
found = {
    "ready": send("/readyz")[0],
    "answers": [send("/api/v1/generate", {"texts": [sys.argv[3]]}) for _ in range(6)],
    "stream": send("/v1/chat/completions", {"model": name, "messages": [message], "stream": True}),
    "libre": send("/translate", {"q": sys.argv[3], "source": "en", "target": "zh"})[0],
    "foreign": send("/v1/models", host="evil.example")[0],
    "keyless": send("/v1/models", key="")[0],
    "texts": send("/api/v1/generate", {"texts": ["a"] * 4})[0],
    "replicas": len(serve.status().applications["default"].deployments["attendo"].replica_states),
    "struck": [send("/api/v1/generate", {"texts": [sys.argv[3]], "max_length": 13})[0] for _ in range(2)],
}
# Ray may not yet know that the first replica died when the second request comes. 20 correct answers in a row show
# that both replicas were replaced.
right, begin = 0, time.monotonic()
while right < 20 and time.monotonic() - begin < 240:
    right = right + 1 if send("/api/v1/generate", {"texts": [sys.argv[3]]}) == found["answers"][0] else 0
    time.sleep(0.1)
found["right"] = right
print("FOUND" + json.dumps(found))
serve.shutdown()
ray.shutdown()
"""


@pytest.mark.slow
def test_app_factory_builds_a_ready_server(tmp_path: Path) -> None:
    model = random_model()
    model.save(tmp_path / "model")
    app = app_factory([tmp_path / "model"], ServeSettings(deadline_seconds=7.5), "cpu", ["en-zh"])()
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/readyz").json() == {"ready": True, "reason": None}
        response = client.post("/api/v1/generate", json={"texts": [TEXT]}).json()
        assert response["results"][0]["text"] == model.generate([TEXT])[0].text
        assert client.get("/languages").json()[0]["code"] == "en"
        assert app._app.gateway.settings.deadline_seconds == 7.5
    assert not app._app.gateway.registry.all()[0].worker.is_ready


@pytest.mark.slow
def test_S10_a_replica_with_a_dead_thread_reports_and_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(Watchdog.__init__, "__defaults__", (end,))
    random_model().save(tmp_path / "model")
    app = app_factory([tmp_path / "model"], ServeSettings(), "cpu")()
    health = HealthCheckMixin()
    health.app = app
    with TestClient(app, base_url="http://localhost"):
        health.check_health()
        app._app.gateway.get_model(None).worker._died = True
        with pytest.raises(ModelError, check=has_code("worker_thread_died")):
            health.check_health()
        assert ended.wait(PATIENCE)
    assert codes == [70]


def test_command_line_arguments_become_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(ray_serve, "deployment", lambda *arguments: given.extend(arguments))
    monkeypatch.setenv("ATTENDO_KEYS", "from-the-environment")
    (tmp_path / "keys").write_text("from-the-file\n", "utf-8")
    names = {"languages": "en-zh,zh-en", "tasks": "translation,translation", "hosts": "Translate.example.org"}
    application(
        RayServeArguments(
            models="a, b", key_file=tmp_path / "keys", limits="max_queued=7, deadline_seconds=2.5", **names
        )
    )
    folders, settings, replicas, device, threads, languages, tasks = given
    assert (folders, replicas, device, threads) == ([Path("a"), Path("b")], 1, "cpu", 1)
    assert (languages, tasks) == (["en-zh", "zh-en"], ["translation"] * 2)
    assert settings.keys == ("from-the-file", "from-the-environment")
    assert (settings.max_queued, settings.deadline_seconds) == (7, 2.5)
    assert settings.allowed_hosts == (*LOOPBACK, "translate.example.org")
    for wrong, check in (
        ("max_queud=7", has_code("unknown_setting", name="max_queud")),
        ('keys=["a"]', has_code("invalid_api_key", min_length=8)),
    ):
        with pytest.raises(UsageError, check=check):
            application(RayServeArguments(models="a", limits=wrong))


def test_missing_models_or_ray_are_usage_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("no such module", name="ray")

    monkeypatch.setattr(ray_serve, "import_module", missing)
    with pytest.raises(UsageError, check=has_code("ray_package_missing", package="ray")):
        deployment([Path("x")])
    monkeypatch.setattr(ray_serve, "import_module", lambda name: None)
    with pytest.raises(UsageError, check=has_code("model_folders_missing")):
        application(RayServeArguments(models=" ,"))
    with pytest.raises(UsageError, check=has_code("unknown_setting", name="model")):
        RayServeArguments(models="x", model="x")
    with pytest.raises(UsageError, check=has_code("setting_missing", name="models")):
        RayServeArguments()


def test_deployment_options_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Recorder()
    monkeypatch.setattr(ray_serve, "import_module", lambda name: stub)
    settings = ServeSettings(max_queued=50, drain_seconds=3)
    assert deployment([Path("x")], settings, replicas=3, device="cuda", threads=2) == "bound"
    assert stub.options["num_replicas"] == 3
    assert stub.options["max_ongoing_requests"] > 2 * 50
    assert stub.options["graceful_shutdown_timeout_s"] == 3
    assert stub.options["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 1}


def test_autoscaling_replaces_the_number_of_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Recorder()
    monkeypatch.setattr(ray_serve, "import_module", lambda name: stub)
    application(RayServeArguments(models="x", replicas=2, max_replicas=5, target_requests=7))
    assert "num_replicas" not in stub.options
    expected = {"min_replicas": 2, "max_replicas": 5, "target_ongoing_requests": 7}
    assert stub.options["autoscaling_config"] == expected
    with pytest.raises(UsageError, check=has_code("max_replicas_below_replicas", replicas=2, max_replicas=1)):
        application(RayServeArguments(models="x", replicas=2, max_replicas=1))


@pytest.mark.slow
def test_two_ray_replicas_return_correct_answers(tmp_path: Path, unused_port: int) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    model = random_model()
    model.save(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITH_RAY, str(tmp_path / "model"), str(unused_port), TEXT],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.removeprefix("FOUND") for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert lines, done.stderr[-2000:]
    found = json.loads(lines[0])
    text = model.generate([TEXT])[0].text
    assert found["ready"] == found["libre"] == 200
    assert [(status, json.loads(body)["results"][0]["text"]) for status, body in found["answers"]] == [(200, text)] * 6
    assert found["stream"][0] == 200
    assert found["stream"][1].rstrip().endswith("data: [DONE]")
    assert found["foreign"] == 400
    assert found["replicas"]
    assert (found["keyless"], found["texts"]) == (401, 413)
    assert all(status >= 500 for status in found["struck"])
    assert found["right"] == 20


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Recorder:
    """A stub of `ray.serve` that records the options of a deployment."""

    def deployment(self, **options: object) -> object:
        self.options = options
        return lambda wrapped: self

    def ingress(self, app: object) -> object:
        return lambda wrapped: wrapped

    def bind(self) -> str:
        return "bound"
