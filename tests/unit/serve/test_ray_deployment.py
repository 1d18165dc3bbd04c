"""The server as a deployment of Ray Serve."""

import json
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_server import TEXT, random_model
from starlette.testclient import TestClient

from attendo.errors import UsageError
from attendo.serve import ray_deployment
from attendo.serve.ray_deployment import Arguments, application, builder, deployment
from attendo.serve.settings import ServeSettings

# In a process of its own: Ray leaves threads, files and warnings behind.
WITH_RAY = """
import json, sys, urllib.request
from pathlib import Path
import ray
from ray import serve
from attendo.serve.ray_deployment import Arguments, application

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(application(Arguments(models=sys.argv[1], replicas=2, languages="en-zh")))

def ask(path, fields=None, host=None):
    body = None if fields is None else json.dumps(fields).encode()
    headers = {"content-type": "application/json", **({"host": host} if host else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[2]}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

message = {"role": "user", "content": sys.argv[3]}
name = json.loads(ask("/v1/models")[1])["data"][0]["id"]
told = {
    "ready": ask("/readyz")[0],
    "answers": [ask("/api/v1/generate", {"texts": [sys.argv[3]]}) for _ in range(6)],
    "stream": ask("/v1/chat/completions", {"model": name, "messages": [message], "stream": True}),
    "libre": ask("/translate", {"q": sys.argv[3], "source": "en", "target": "zh"})[0],
    "foreign": ask("/v1/models", host="evil.example")[0],
    "replicas": len(serve.status().applications["default"].deployments["attendo"].replica_states),
}
print("TOLD" + json.dumps(told))
serve.shutdown()
ray.shutdown()
"""


def test_what_travels_to_a_replica_makes_a_server_that_is_ready(tmp_path: Path) -> None:
    model = random_model()
    model.save(tmp_path / "model")
    app = builder([tmp_path / "model"], ServeSettings(deadline_seconds=7.5), "cpu", ["en-zh"])()
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/readyz").json() == {"ready": True, "reason": None}
        answered = client.post("/api/v1/generate", json={"texts": [TEXT]}).json()
        assert answered["results"][0]["text"] == model.generate([TEXT])[0].text
        assert client.get("/languages").json()[0]["code"] == "en"
        assert app._app.office.settings.deadline_seconds == 7.5
    assert not app._app.office.shelf.all()[0].batcher.ready


def test_without_models_or_ray_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("no such module", name="ray")

    monkeypatch.setattr(ray_deployment, "import_module", missing)
    with pytest.raises(UsageError, match=r"a deployment needs ray: pip install 'attendo\[ray\]'"):
        deployment([Path("x")])
    monkeypatch.setattr(ray_deployment, "import_module", lambda name: None)
    with pytest.raises(UsageError, match="models are missing"):
        application(Arguments(models=" ,"))
    with pytest.raises(UsageError, match=r"unknown setting model \(did you mean models\?\)"):
        Arguments(model="x")


def test_a_deployment_has_room_for_the_queue_of_the_batcher_and_time_to_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Recorder()
    monkeypatch.setattr(ray_deployment, "import_module", lambda name: stand_in)
    settings = ServeSettings(waiting=50, drain_seconds=3)
    assert deployment([Path("x")], settings, replicas=3, device="cuda", threads=2) == "bound"
    assert stand_in.options["num_replicas"] == 3
    assert stand_in.options["max_ongoing_requests"] > 2 * 50
    assert stand_in.options["graceful_shutdown_timeout_s"] == 3
    assert stand_in.options["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 1}


@pytest.mark.slow
def test_two_replicas_of_a_local_ray_answer(tmp_path: Path, unused_port: int) -> None:
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
    lines = [line.removeprefix("TOLD") for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert lines, done.stderr[-2000:]
    told = json.loads(lines[0])
    text = model.generate([TEXT])[0].text
    assert told["ready"] == told["libre"] == 200
    assert [(status, json.loads(body)["results"][0]["text"]) for status, body in told["answers"]] == [(200, text)] * 6
    assert told["stream"][0] == 200
    assert told["stream"][1].rstrip().endswith("data: [DONE]")
    assert told["foreign"] == 400
    assert told["replicas"]


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Recorder:
    """Stands for `ray.serve`."""

    def deployment(self, **options: object) -> object:
        self.options = options
        return lambda made: self

    def ingress(self, app: object) -> object:
        return lambda: object

    def bind(self) -> str:
        return "bound"
