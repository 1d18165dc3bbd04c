"""S14: metrics equal the counts of the client, and no label contains request data."""

import asyncio
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from guarded_app import PATHS, GuardedApp
from prometheus_client.parser import text_string_to_metric_families
from small_server import API, TEXT, SmallServer, random_model

from attendo.serve.http.metrics import ServerMetrics, resident_bytes
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

CANARY = "canary-7f3a"


def test_requests_are_counted_by_route_and_status() -> None:
    app = GuardedApp()
    counted: Counter[tuple[str, str]] = Counter()
    for _ in range(3):
        for api, path in PATHS.items():
            counted[path, str(app.post(api).status_code)] += 1
            counted[path, str(app.post(api, refuse="busy").status_code)] += 1
            counted[path, str(app.client.get(path).status_code)] += 1
            counted[path, str(app.client.post(path, content=b"x" * 1_100_000).status_code)] += 1
        counted["/things/{name}", str(app.client.get(f"/things/{CANARY}").status_code)] += 1
        counted["none", str(app.client.get(f"/{CANARY}").status_code)] += 1
    found = {
        (sample.labels["route"], sample.labels["status"]): int(sample.value)
        for sample in samples(app, "attendo_requests_total")
    }
    assert found == dict(counted)
    assert {status for _, status in counted} == {"200", "404", "405", "413", "429"}
    reasons = {each.labels["reason"]: each.value for each in samples(app, "attendo_rejected_total")}
    assert reasons == {"busy": 15, "bad_method": 15, "body_too_large": 15, "not_found": 3}
    assert app.metric_values()['attendo_request_seconds_count{route="/translate"}'] == 12


def test_request_data_creates_no_series() -> None:
    app = GuardedApp()
    counts: list[int] = []
    for number in range(12):
        word = f"{CANARY}-{number}"
        app.client.get(f"/{word}?{word}", headers={"x": word, "x-request-id": word, "origin": word})
        app.client.get(f"/things/{word}")
        app.client.request(f"M{number}", "/things/x")
        app.post("ours", {"x-api-key": word}, text=word)
        app.post("ours", fail=word)
        counts.append(len(app.metric_values()))
    assert counts[1:] == counts[1:2] * 11
    assert CANARY not in app.client.get("/metrics").text


def test_tokens_and_times_are_counted() -> None:
    app = GuardedApp()
    for _ in range(3):
        app.post("deepl")
    app.gateway.metrics.observe_first_token(0.2)
    app.gateway.metrics.observe_times(0.3, 4.0)
    numbers = app.metric_values()
    assert numbers['attendo_source_tokens_total{model="small"}'] == 9
    assert numbers['attendo_target_tokens_total{model="small"}'] == 12
    assert numbers["attendo_first_token_seconds_sum"] == pytest.approx(0.2)
    assert numbers["attendo_queue_seconds_sum"] == pytest.approx(0.3)
    assert numbers["attendo_decoding_seconds_sum"] == pytest.approx(4.0)
    assert numbers["attendo_in_flight_requests"] == 1  # the request for the metrics


def test_scored_tokens_count_as_source_tokens(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(metrics_open=True))
    pairs = [{"source": TEXT, "target": "猫 坐"}] * 9 + [{"source": "", "target": ""}]
    assert server.raw("score", pairs=pairs).status_code == 200
    numbers = dict(line.rsplit(" ", 1) for line in server.client.get("/metrics").text.splitlines())
    assert float(numbers['attendo_source_tokens_total{model="small"}']) == 9 * (len(TEXT.split()) + 2)
    assert float(numbers['attendo_target_tokens_total{model="small"}']) == 0
    assert float(numbers['attendo_requests_total{route="/api/v1/score",status="200"}']) == 1


def test_model_gauges_are_current() -> None:
    worker = SimpleNamespace(num_waiting=3, num_running=2, batch_size=7, on_finished=None)
    one = SimpleNamespace(name="one", worker=worker, sha256="ab12")
    other = SimpleNamespace(name="other", worker=worker, sha256=None)
    app = GuardedApp(models=(one, other))
    numbers = app.metric_values()
    assert numbers['attendo_waiting_requests{model="one"}'] == 3
    assert numbers['attendo_running_requests{model="other"}'] == 2
    assert numbers['attendo_batch_size{model="one"}'] == 7
    assert numbers['attendo_model_info{model="one",sha256="ab12"}'] == 1
    assert numbers['attendo_model_info{model="other",sha256=""}'] == 1
    assert numbers["attendo_resident_bytes"] > 1e6
    worker.num_waiting = 0
    assert app.metric_values()['attendo_waiting_requests{model="one"}'] == 0
    assert worker.on_finished == app.gateway.metrics.observe_times


def test_resident_bytes_are_current() -> None:
    before = resident_bytes()
    block = bytearray(64 * 1024 * 1024)
    block[::4096] = b"x" * len(block[::4096])
    assert resident_bytes() - before > 32 * 1024 * 1024


def test_metrics_are_local_by_default() -> None:
    assert GuardedApp().client.get("/metrics").status_code == 200
    assert GuardedApp(client=("::1", 1)).client.get("/metrics").status_code == 200
    for app in (GuardedApp(client=("192.0.2.1", 1)), GuardedApp(client=("somebody", 1))):
        assert app.client.get("/metrics").json()["error"]["code"] == "metrics_closed"
    for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
        assert GuardedApp().client.get("/metrics", headers={name: "127.0.0.1"}).status_code == 403
    assert GuardedApp(client=("192.0.2.1", 1), metrics_open=True).client.get("/metrics").status_code == 200


def test_a_key_allows_reading_metrics() -> None:
    app = GuardedApp(client=("192.0.2.1", 1), keys=("k",))
    assert app.client.get("/metrics").status_code == 401
    assert app.client.get("/metrics", headers={"authorization": "Bearer k"}).status_code == 200
    assert GuardedApp(keys=("k",)).client.get("/metrics").status_code == 200


@pytest.mark.parametrize("when", ["before its body came", "while it is computed", "while it is told", "after it all"])
def test_a_disconnect_is_counted_once(when: str) -> None:
    gateway: Any = SimpleNamespace(settings=ServeSettings(), metrics=ServerMetrics(), draining=False, is_full=False)
    started, disconnect = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
            if when == "while it is computed":
                disconnect.set()
                await asyncio.sleep(60)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": when == "while it is told"})
            disconnect.set()
            if when == "while it is told":
                await asyncio.sleep(60)
            await asyncio.sleep(0.02)  # work after the complete response
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def receive() -> dict[str, Any]:
        if when == "before its body came" or started.is_set():
            if when != "before its body came":
                await disconnect.wait()
            return {"type": "http.disconnect"}
        started.set()
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(RequestGuard(app, gateway)(scope, receive, send))
    value = gateway.metrics.registry.get_sample_value
    completed = when == "after it all"
    assert value("attendo_cancelled_total") == (0 if completed else 1)
    assert value("attendo_requests_total", {"route": "none", "status": "200" if completed else "499"}) == 1
    assert value("attendo_in_flight_requests") == 0
    assert ended == ([] if when == "before its body came" else ["by itself"] if completed else ["cancelled"])


def test_a_real_server_updates_metrics(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(metrics_open=True))
    for _ in range(2):
        assert server.raw("generate", texts=[TEXT]).status_code == 200
    numbers = {
        sample.name + str(sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(server.client.get("/metrics").text)
        for sample in family.samples
    }
    assert numbers[f"attendo_requests_total['{API}/generate', '200']"] == 2
    assert numbers["attendo_source_tokens_total['small']"] > 0
    assert numbers["attendo_target_tokens_total['small']"] > 0
    assert numbers["attendo_queue_seconds_count[]"] == 2
    assert numbers["attendo_decoding_seconds_sum[]"] > 0


def test_two_applications_have_separate_metrics() -> None:
    one, other = SmallServer(ModelSpec("a", random_model())), SmallServer(ModelSpec("b", random_model()))
    one.get("models")
    found = other.app.gateway.metrics.registry.get_sample_value(
        "attendo_requests_total", {"route": f"{API}/models", "status": "200"}
    )
    assert found is None


def samples(app: GuardedApp, name: str) -> list[Any]:
    text = app.client.get("/metrics").text
    assert re.search(rf"^# TYPE {name.removesuffix('_total')}", text, re.MULTILINE)
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples if sample.name == name]
