"""S5, S6, S12, S14: overload, clients that disconnect, equal outputs under load, and exact metrics."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from children import Children
from loaded_server import LoadedServer, increases, label_values, sentences, serving, serving_forked, wait_until

from attendo.bench.load_test.apis import Api
from attendo.bench.load_test.load import Load, RequestOutcome
from attendo.bench.load_test.report import LoadSummary

LONG = {"min_length": 512, "max_length": 512}  # runs until it is cancelled
WORK = {"min_length": 200, "max_length": 200}  # costs more in the model than in the connection
WAITING = 16
MANY = sentences(3_000)  # distinct texts, because equal concurrent requests share one computation
CORES = len(os.sched_getaffinity(0))
ROUTE = "/api/v1/generate"


@pytest.fixture(scope="module")
def server(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedServer]:
    """A server with a queue of WAITING requests, where WORK takes at least 1 s."""
    folder, slow = tmp_path_factory.mktemp("served") / "model", ("slow_steps", {"seconds": 0.005, "longest": 200})
    with serving_forked(children, folder, "--set", f"max_queued={WAITING}", before=[slow]) as started:
        yield started


@pytest.fixture(scope="module")
def default_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedServer]:
    """A server with the default limits."""
    with serving(tmp_path_factory.mktemp("roomy") / "model") as started:
        yield started


@pytest.fixture(scope="module")
def patient_server(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedServer]:
    """A server that rejects no request for its waiting time, where LONG takes at least 25 s."""
    slow = ("slow_steps", {"seconds": 0.05, "longest": 512})
    with serving_forked(children, tmp_path_factory.mktemp("patient") / "model", before=[slow]) as started:
        yield started


def count_results(outcomes: list[RequestOutcome]) -> Counter[Any]:
    return Counter(each.status or each.end for each in outcomes)


def test_S5_overload_is_rejected_and_the_rest_answered(server: LoadedServer) -> None:
    before = server.counts()
    outcomes = server.send_load(Load(rate=240, seconds=0.5, deadline=600), **WORK)
    found = count_results(outcomes)
    assert set(found) == {200, 429}  # no timeouts, dropped connections or server errors
    assert found[200] >= WAITING
    counted = increases(before, server.counts(), "attendo_requests_total", "attendo_rejected_total")
    assert counted["attendo_requests_total", ROUTE, "200"] == found[200]
    assert counted["attendo_requests_total", ROUTE, "429"] == counted["attendo_rejected_total", "busy"] == found[429]
    wait_until(lambda: server.idle)
    assert count_results(server.answers(["the cat"], 1)) == {200: 1}


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 5])
def test_S5_overload_for_30_s_keeps_goodput_and_latency(default_server: LoadedServer, times: int) -> None:
    """Other processes disturb the times, so one success in three is enough."""
    tries = [measure_overload(default_server, times)]
    while len(tries) < 3 and not tries[-1][0]:
        tries.append(measure_overload(default_server, times))
    assert tries[-1][0], "\n".join(summary for _, summary in tries)


def measure_overload(server: LoadedServer, times: int) -> tuple[bool, str]:
    """Return whether the limits are met at `times` times the capacity, and all numbers.

    With fewer than 4 cores the load client and the rejections take CPU time from the model, most of all at 5 times
    the capacity. The limits are lower there.
    """
    goodput, slowdown, rejection_limit = (0.9, 2.0, 0.05) if CORES >= 4 else (0.5, 3.0, 0.1)
    capacity = server.capacity(texts=MANY, **WORK)
    light_load = LoadSummary.from_outcomes(
        server.send_load(Load(rate=0.8 * capacity, seconds=15), texts=MANY, **WORK), 15
    ).latency
    outcomes = server.send_load(Load(rate=times * capacity, seconds=30), texts=MANY, **WORK)
    idle = LoadSummary.from_outcomes(server.send_load(Load(clients=1, seconds=2), texts=MANY, **WORK), 2).latency
    overload = LoadSummary.from_outcomes(outcomes, 30)
    assert set(count_results(outcomes)) == {200, 429}
    assert light_load is not None
    assert idle is not None
    assert overload.latency is not None
    assert overload.rejection is not None
    is_met = (
        overload.requests_per_second >= goodput * capacity
        and overload.latency.p99 <= min(8.0, slowdown * light_load.p99)
        and overload.rejection.p99 <= rejection_limit
        and idle.p50 <= light_load.p50
    )
    return is_met, (
        f"{capacity:.1f} answers/s; at 80% {light_load}; "
        f"at {times} times {overload.requests_per_second:.1f}/s, {overload}; {idle}"
    )


@pytest.mark.slow
def test_S5_requests_that_fit_the_batch_are_not_rejected(default_server: LoadedServer) -> None:
    """Also if outputs are long, and all requests end and return at the same time."""
    assert set(count_results(default_server.answers(MANY[:500], 32, min_length=40, max_length=40))) == {200}


@pytest.mark.short(1)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_S6_disconnected_clients_are_cancelled(patient_server: LoadedServer, stream: bool) -> None:
    check_disconnects(patient_server, 60, stream)  # twice the size of the batch


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_S6_100_disconnected_clients_are_cancelled(patient_server: LoadedServer, stream: bool) -> None:
    check_disconnects(patient_server, 100, stream)


def check_disconnects(server: LoadedServer, clients: int, stream: bool) -> None:
    """All clients disconnect while queued or running, before any could have been answered."""
    before = server.counts()
    load = Load(rate=clients * 2, seconds=0.5, leaving=1.0, leave_within=0.25, deadline=600)
    found = count_results(server.send_load(load, **LONG, stream=stream))
    assert set(found) == {"left"}
    assert found["left"] > clients / 2
    wait_until(lambda: server.idle)
    after = server.counts()
    counted = increases(before, after, "attendo_cancelled_total", "attendo_requests_total")
    assert counted["attendo_cancelled_total",] == found["left"]
    assert {key: value for key, value in counted.items() if ROUTE in key} == {
        ("attendo_requests_total", ROUTE, "499"): found["left"]
    }
    assert count_results(server.answers(["the cat"], 1)) == {200: 1}
    written = increases(after, server.counts(), "attendo_target_tokens_total")
    assert sum(written.values()) < 100  # tokens of this answer, and none of the cancelled requests


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        pytest.param("own", {"beam": 3}, id="beam"),
        pytest.param("libretranslate", {}, id="libretranslate", marks=pytest.mark.slow),
        pytest.param("openai", {}, id="stream", marks=pytest.mark.slow),
    ],
)
def test_S12_texts_are_the_same_under_load(server: LoadedServer, api: Api, fields: dict[str, Any]) -> None:
    check_equal_texts(server, sentences(20), 10, api, fields)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["own", "libretranslate", "openai"])
def test_S12_500_texts_are_the_same_under_load(patient_server: LoadedServer, api: Api) -> None:
    check_equal_texts(patient_server, sentences(500, longest=20), 32, api, {})


def check_equal_texts(server: LoadedServer, texts: list[str], clients: int, api: Api, fields: dict[str, Any]) -> None:
    alone = server.answers(texts, 1, api, **fields)
    together = server.answers(texts, clients, api, **fields)
    assert count_results(alone) == count_results(together) == {200: len(texts)}
    texts_alone = [each.response.text for each in alone if each.response is not None]
    assert texts_alone == [each.response.text for each in together if each.response is not None]
    assert len(set(texts_alone)) > len(texts) / 4  # equal outputs for all texts would prove nothing


def test_S14_counters_match_the_client_and_contain_no_text(patient_server: LoadedServer) -> None:
    before, routes = (
        patient_server.counts(),
        {"own": ROUTE, "libretranslate": "/translate", "openai": "/v1/chat/completions"},
    )
    texts = [f"xylophone-{number} the cat" for number in range(20)]
    disconnecting = Load(rate=40, seconds=0.5, leaving=1.0, leave_within=0.2, deadline=600)
    expected = Counter[Any](
        ("attendo_requests_total", ROUTE, "499") for _ in patient_server.send_load(disconnecting, texts=texts, **LONG)
    )
    apis: tuple[Api, ...] = ("own", "libretranslate", "openai")
    for api in apis:
        for outcome in patient_server.send_load(Load(clients=4, seconds=0.4), api, texts):
            expected["attendo_requests_total", routes[api], str(outcome.status)] += 1
    for outcome in patient_server.send_load(Load(clients=2, seconds=0.1), texts=texts, beam=99):
        assert outcome.status == 400
        expected["attendo_requests_total", ROUTE, str(outcome.status)] += 1
    wait_until(lambda: patient_server.idle)
    counted = increases(before, patient_server.counts(), "attendo_requests_total")
    assert {key: value for key, value in counted.items() if key[1] in routes.values()} == expected
    metrics = patient_server.get("/metrics")
    assert "xylophone" not in metrics
    assert "127.0.0.1" not in metrics
    assert not any(" " in value or len(value) > 64 for value in label_values(metrics))
