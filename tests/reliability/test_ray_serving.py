"""Two replicas on a local Ray under load: autoscaling, a rolling update of the model, a killed replica, metrics."""

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tiny import PATIENCE, SOURCES, tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the script reads /proc"),
]
CLIENTS = 4
# On a busy machine Ray's proxy does not start within 5 s.
PATIENT = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120"}
# Runs in its own process, because Ray leaves threads, files and warnings.
SCRIPT = """
import json, os, signal, sys, threading, time, urllib.error, urllib.request
from pathlib import Path
import ray
from ray import serve
from attendo.serve.ray_serve import deployment, make_autoscaling
from attendo.serve.settings import ServeSettings

first, second, port, text, clients, patience = *sys.argv[1:3], int(sys.argv[3]), sys.argv[4], *map(int, sys.argv[5:7])
settings = ServeSettings(deadline_seconds=patience, drain_seconds=60, metrics_open=True)
quick = {"upscale_delay_s": 1, "look_back_period_s": 2, "metrics_interval_s": 1, "downscale_delay_s": 600}
scaling = {**make_autoscaling(1, 2, 1), **quick}
answers, stop, phase = [], threading.Event(), ["first"]

def send(path, fields=None):
    body = None if fields is None else json.dumps(fields).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=patience) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 599, str(error)

def work():
    while not stop.is_set():
        begin = phase[0]
        status, body = send("/api/v1/generate", {"texts": [text]})
        retried = None
        if status >= 500:  # a client sends it again, as the libraries of OpenAI and DeepL do
            retried = [status, body[:200]]
            for _ in range(100):
                status, body = send("/api/v1/generate", {"texts": [text]})
                if status == 200:
                    break
                time.sleep(0.2)
        found = json.loads(body)["results"][0]["text"] if status == 200 else body[:200]
        answers.append([begin, phase[0], status, found, retried])

def wait_for(check):
    begin = time.monotonic()
    while not check():
        assert time.monotonic() - begin < patience, "waited in vain"
        time.sleep(0.2)

def count_running():
    found = serve.status().applications["default"].deployments["attendo"]
    states = {getattr(name, "value", name): count for name, count in found.replica_states.items()}
    return states.get("RUNNING", 0) if sum(states.values()) == states.get("RUNNING", 0) else 0

def list_replicas():
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_bytes()
            session = (folder / "environ").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::ServeReplica:default:attendo") and marker in session:
            yield int(folder.name)

def enter(name, answered):
    phase[0] = name
    count = len(answers)
    wait_for(lambda: len(answers) >= count + answered)

marker = b"ATTENDO_TEST_MARKER=" + str(os.getpid()).encode()
os.environ["ATTENDO_TEST_MARKER"] = str(os.getpid())
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
for attempt in range(9):  # a busy machine needs more than the 60 s that Ray waits
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        break
    except TimeoutError:
        assert attempt < 8
serve.run(deployment([Path(first)], settings, replicas=scaling))
found = {"at_first": count_running()}
threads = [threading.Thread(target=work) for _ in range(clients)]
for each in threads:
    each.start()
wait_for(lambda: count_running() == 2)
enter("update", 2 * clients)
serve.run(deployment([Path(second)], settings, replicas=scaling))
wait_for(lambda: count_running() == 2)
enter("updated", 4 * clients)
stop.set()
for each in threads:
    each.join()
time.sleep(5)  # two reports of the replicas
found["metrics"] = [send("/metrics")[1] for _ in range(6)]
found["answered"] = len(answers)
stop.clear()
threads = [threading.Thread(target=work) for _ in range(clients)]
for each in threads:
    each.start()
wait_for(lambda: count_running() == 2)
enter("kill", 2 * clients)
killed = sorted(list_replicas())
found["replicas"] = len(killed)
os.kill(killed[0], signal.SIGKILL)
enter("killed", 6 * clients)
wait_for(lambda: count_running() == 2 and killed[0] not in list_replicas())
stop.set()
for each in threads:
    each.join()
found["answers"] = answers
print("FOUND" + json.dumps(found))
serve.shutdown()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    texts = []
    for seed, name in enumerate(("one", "two")):
        model = tiny_model(seed=seed + 3)
        model.save(folder / name / "model")
        texts.append(model.generate([SOURCES[0]])[0].text)
    assert texts[0] != texts[1]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    given = [str(folder / "one/model"), str(folder / "two/model"), str(port), SOURCES[0], str(CLIENTS)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *given, str(int(2 * PATIENCE))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **PATIENT, "OMP_NUM_THREADS": "1"},
    )
    lines = [line.removeprefix("FOUND") for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert lines, done.stderr[-3000:]
    return {**json.loads(lines[0]), "texts": texts}


def test_replicas_are_added_under_load(found: dict[str, Any]) -> None:
    assert found["at_first"] == 1
    assert found["replicas"] == 2


def test_a_rolling_update_fails_no_request(found: dict[str, Any]) -> None:
    before_kill = [answer for answer in found["answers"] if answer[1] in ("first", "update", "updated")]
    assert [answer for answer in before_kill if answer[2] != 200 or answer[4] is not None] == []
    assert {answer[3] for answer in before_kill} == set(found["texts"])
    assert {answer[3] for answer in before_kill if answer[0] == "updated"} == {found["texts"][1]}


def test_a_killed_replica_loses_only_its_own_requests(found: dict[str, Any]) -> None:
    """A client has one request at a time, so at most one of each client was with the killed replica."""
    after = [answer for answer in found["answers"] if answer[1] in ("kill", "killed")]
    lost = [answer for answer in after if answer[4] is not None]
    assert len(lost) <= CLIENTS, lost
    assert {(answer[2], answer[3]) for answer in after} == {(200, found["texts"][1])}


def test_metrics_are_those_of_all_replicas(found: dict[str, Any]) -> None:
    counts = set()
    for text in found["metrics"]:
        lines = [line for line in text.splitlines() if line.startswith("attendo_requests_total") and "generate" in line]
        counts.add(sum(float(line.rpartition(" ")[2]) for line in lines if 'status="200"' in line))
    assert counts == {float(found["answered"])}
