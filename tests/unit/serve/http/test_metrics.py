"""S14: numbers are those that a client counts itself, and no label holds what somebody sent."""

import asyncio
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_gate import PATHS, SmallGate
from small_server import API, TEXT, Asking, random_model

from attendo.serve.http.metrics import ServerMetrics, resident_bytes
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

CANARY = "canary-7f3a"


def test_requests_are_counted_by_route_and_status() -> None:
    gate = SmallGate()
    counted: Counter[tuple[str, str]] = Counter()
    for _ in range(3):
        for shape, path in PATHS.items():
            counted[path, str(gate.post(shape).status_code)] += 1
            counted[path, str(gate.post(shape, refuse="busy").status_code)] += 1
            counted[path, str(gate.client.get(path).status_code)] += 1
            counted[path, str(gate.client.post(path, content=b"x" * 1_100_000).status_code)] += 1
        counted["/things/{name}", str(gate.client.get(f"/things/{CANARY}").status_code)] += 1
        counted["none", str(gate.client.get(f"/{CANARY}").status_code)] += 1
    found = {
        (sample.labels["route"], sample.labels["status"]): int(sample.value)
        for sample in samples(gate, "attendo_requests_total")
    }
    assert found == dict(counted)
    assert {status for _, status in counted} == {"200", "404", "405", "413", "429"}
    reasons = {each.labels["reason"]: each.value for each in samples(gate, "attendo_rejected_total")}
    assert reasons == {"busy": 15, "bad_method": 15, "body_too_large": 15, "not_found": 3}
    assert gate.numbers()['attendo_request_seconds_count{route="/translate"}'] == 12


def test_no_series_is_made_of_what_is_sent() -> None:
    gate = SmallGate()
    shapes: list[int] = []
    for number in range(12):
        word = f"{CANARY}-{number}"
        gate.client.get(f"/{word}?{word}", headers={"x": word, "x-request-id": word, "origin": word})
        gate.client.get(f"/things/{word}")
        gate.client.request(f"M{number}", "/things/x")
        gate.post("ours", {"x-api-key": word}, text=word)
        gate.post("ours", fail=word)
        shapes.append(len(gate.numbers()))
    assert shapes[1:] == shapes[1:2] * 11
    assert CANARY not in gate.client.get("/metrics").text


def test_tokens_and_times_are_counted() -> None:
    gate = SmallGate()
    for _ in range(3):
        gate.post("deepl")
    gate.office.metrics.observe_first_token(0.2)
    gate.office.metrics.observe_times(0.3, 4.0)
    numbers = gate.numbers()
    assert numbers['attendo_source_tokens_total{model="small"}'] == 9
    assert numbers['attendo_target_tokens_total{model="small"}'] == 12
    assert numbers["attendo_first_token_seconds_sum"] == pytest.approx(0.2)
    assert numbers["attendo_queue_seconds_sum"] == pytest.approx(0.3)
    assert numbers["attendo_decoding_seconds_sum"] == pytest.approx(4.0)
    assert numbers["attendo_in_flight_requests"] == 1  # the one that asks for them


def test_what_is_scored_is_counted_as_read(small_model: TextModel) -> None:
    server = Asking(ModelSpec("small", small_model), settings=ServeSettings(metrics_open=True))
    pairs = [{"source": TEXT, "target": "猫 坐"}] * 9 + [{"source": "", "target": ""}]
    assert server.raw("score", pairs=pairs).status_code == 200
    numbers = dict(line.rsplit(" ", 1) for line in server.client.get("/metrics").text.splitlines())
    assert float(numbers['attendo_source_tokens_total{model="small"}']) == 9 * (len(TEXT.split()) + 2)
    assert float(numbers['attendo_target_tokens_total{model="small"}']) == 0
    assert float(numbers['attendo_requests_total{route="/api/v1/score",status="200"}']) == 1


def test_how_models_stand_is_looked_up_when_it_is_asked_for() -> None:
    batcher = SimpleNamespace(num_waiting=3, num_running=2, batch_size=7, on_finished=None)
    one = SimpleNamespace(name="one", worker=batcher, sha256="ab12")
    other = SimpleNamespace(name="other", worker=batcher, sha256=None)
    gate = SmallGate(models=(one, other))
    numbers = gate.numbers()
    assert numbers['attendo_waiting_requests{model="one"}'] == 3
    assert numbers['attendo_running_requests{model="other"}'] == 2
    assert numbers['attendo_batch_size{model="one"}'] == 7
    assert numbers['attendo_model_info{model="one",sha256="ab12"}'] == 1
    assert numbers['attendo_model_info{model="other",sha256=""}'] == 1
    assert numbers["attendo_resident_bytes"] > 1e6
    batcher.num_waiting = 0
    assert gate.numbers()['attendo_waiting_requests{model="one"}'] == 0
    assert batcher.on_finished == gate.office.metrics.observe_times


def test_memory_is_that_of_now() -> None:
    before = resident_bytes()
    held = bytearray(64 * 1024 * 1024)
    held[::4096] = b"x" * len(held[::4096])
    assert resident_bytes() - before > 32 * 1024 * 1024


def test_metrics_are_for_this_machine() -> None:
    assert SmallGate().client.get("/metrics").status_code == 200
    assert SmallGate(client=("::1", 1)).client.get("/metrics").status_code == 200
    for gate in (SmallGate(client=("192.0.2.1", 1)), SmallGate(client=("somebody", 1))):
        assert gate.client.get("/metrics").json()["error"]["code"] == "metrics_closed"
    for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
        assert SmallGate().client.get("/metrics", headers={name: "127.0.0.1"}).status_code == 403
    assert SmallGate(client=("192.0.2.1", 1), metrics_open=True).client.get("/metrics").status_code == 200


def test_whoever_has_a_key_may_read_them_too() -> None:
    gate = SmallGate(client=("192.0.2.1", 1), keys=("k",))
    assert gate.client.get("/metrics").status_code == 401
    assert gate.client.get("/metrics", headers={"authorization": "Bearer k"}).status_code == 200
    assert SmallGate(keys=("k",)).client.get("/metrics").status_code == 200


@pytest.mark.parametrize("when", ["before its body came", "while it is computed", "while it is told", "after it all"])
def test_a_client_that_leaves_is_counted_once(when: str) -> None:
    office: Any = SimpleNamespace(settings=ServeSettings(), metrics=ServerMetrics(), draining=False, is_full=False)
    started, leaves = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
            if when == "while it is computed":
                leaves.set()
                await asyncio.sleep(60)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": when == "while it is told"})
            leaves.set()
            if when == "while it is told":
                await asyncio.sleep(60)
            await asyncio.sleep(0.02)  # what is left to do once all is told
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("told to")
            raise

    async def receive() -> dict[str, Any]:
        if when == "before its body came" or started.is_set():
            if when != "before its body came":
                await leaves.wait()
            return {"type": "http.disconnect"}
        started.set()
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(RequestGuard(app, office)(scope, receive, send))
    value = office.metrics.registry.get_sample_value
    stayed = when == "after it all"
    assert value("attendo_cancelled_total") == (0 if stayed else 1)
    assert value("attendo_requests_total", {"route": "none", "status": "200" if stayed else "499"}) == 1
    assert value("attendo_in_flight_requests") == 0
    assert ended == ([] if when == "before its body came" else ["by itself"] if stayed else ["told to"])


def test_a_real_server_counts_too(small_model: TextModel) -> None:
    server = Asking(ModelSpec("small", small_model), settings=ServeSettings(metrics_open=True))
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


def test_two_applications_in_one_process_do_not_mix() -> None:
    one, other = Asking(ModelSpec("a", random_model())), Asking(ModelSpec("b", random_model()))
    one.get("models")
    found = other.app.gateway.metrics.registry.get_sample_value(
        "attendo_requests_total", {"route": f"{API}/models", "status": "200"}
    )
    assert found is None


def samples(gate: SmallGate, name: str) -> list[Any]:
    text = gate.client.get("/metrics").text
    assert re.search(rf"^# TYPE {name.removesuffix('_total')}", text, re.MULTILINE)
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples if sample.name == name]
