"""S5, S6, S12, S14: a server under more than it can take, with clients that leave, and what it counts of it."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from children import Children
from loaded_server import Loaded, forked, grown, label_values, sentences, serving, until

from attendo.bench.load_test import Api, Load, LoadSummary, RequestOutcome

LONG = {"min_length": 512, "max_length": 512}  # runs until it is told to stop
WORK = {"min_length": 200, "max_length": 200}  # more for the model than for the connection
WAITING = 16
MANY = sentences(3_000)  # different texts: one that is asked for twice at the same time is answered once for both
CORES = len(os.sched_getaffinity(0))
ROUTE = "/api/v1/generate"


@pytest.fixture(scope="module")
def server(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Few may wait, and WORK takes a second at least."""
    folder, slow = tmp_path_factory.mktemp("served") / "model", ("slow_steps", {"seconds": 0.005, "longest": 200})
    with forked(children, folder, "--set", f"max_queued={WAITING}", before=[slow]) as started:
        yield started


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """With the limits that a server has unless told otherwise."""
    with serving(tmp_path_factory.mktemp("roomy") / "model") as started:
        yield started


@pytest.fixture(scope="module")
def patient(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Refuses nobody for how long they would wait, and LONG takes half a minute at least."""
    slow = ("slow_steps", {"seconds": 0.05, "longest": 512})
    with forked(children, tmp_path_factory.mktemp("patient") / "model", before=[slow]) as started:
        yield started


def ends(outcomes: list[RequestOutcome]) -> Counter[Any]:
    return Counter(each.status or each.end for each in outcomes)


def test_S5_more_than_it_can_take_is_turned_away_at_once_and_the_rest_answered(server: Loaded) -> None:
    before = server.counts()
    outcomes = server.put(Load(rate=240, seconds=0.5, deadline=600), **WORK)
    found = ends(outcomes)
    assert set(found) == {200, 429}  # and nobody is late, left alone, or told of an error of the server
    assert found[200] >= WAITING
    counted = grown(before, server.counts(), "attendo_requests_total", "attendo_rejected_total")
    assert counted["attendo_requests_total", ROUTE, "200"] == found[200]
    assert counted["attendo_requests_total", ROUTE, "429"] == counted["attendo_rejected_total", "busy"] == found[429]
    until(lambda: server.idle)
    assert ends(server.answers(["the cat"], 1)) == {200: 1}


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 5])
def test_S5_thirty_seconds_of_more_than_it_can_take(roomy: Loaded, times: int) -> None:
    """With times, which mean something where nothing else runs beside it.

    On two cores the client that loads the server has a share of them, as large as that of whoever refuses, and what is
    left to compute with is slower, the more so at 5 times: there it is held to less.
    """
    goodput, slower, refused = (0.9, 2.0, 0.05) if CORES >= 4 else (0.5, 3.0, 0.1)
    capacity = roomy.capacity(texts=MANY, **WORK)
    easy = LoadSummary.from_outcomes(roomy.put(Load(rate=0.8 * capacity, seconds=15), texts=MANY, **WORK), 15).latency
    outcomes = roomy.put(Load(rate=times * capacity, seconds=30), texts=MANY, **WORK)
    idle = LoadSummary.from_outcomes(roomy.put(Load(clients=1, seconds=2), texts=MANY, **WORK), 2).latency
    hard = LoadSummary.from_outcomes(outcomes, 30)
    assert set(ends(outcomes)) == {200, 429}
    assert easy is not None
    assert idle is not None
    assert hard.latency is not None
    assert hard.rejection is not None
    told = f"{capacity:.1f} answers/s; at 80% {easy}; at {times} times {hard.requests_per_second:.1f}/s, {hard}; {idle}"
    assert hard.requests_per_second >= goodput * capacity, told
    assert hard.latency.p99 <= min(8.0, slower * easy.p99), told
    assert hard.rejection.p99 <= refused, told
    assert idle.p50 <= easy.p50, told


@pytest.mark.slow
def test_S5_as_many_as_have_a_seat_are_not_turned_away(roomy: Loaded) -> None:
    """Also where answers take long, and all end and come again at once."""
    assert set(ends(roomy.answers(MANY[:500], 32, min_length=40, max_length=40))) == {200}


@pytest.mark.short(1)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_S6_whoever_leaves_is_worked_for_no_more(patient: Loaded, stream: bool) -> None:
    left(patient, 60, stream)  # twice as many as have a place in the batch


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_S6_a_hundred_clients_leave(patient: Loaded, stream: bool) -> None:
    left(patient, 100, stream)


def left(server: Loaded, clients: int, stream: bool) -> None:
    """All leave while they wait or while they are answered, and none could have been answered by then."""
    before = server.counts()
    load = Load(rate=clients * 2, seconds=0.5, leaving=1.0, leave_within=0.25, deadline=600)
    found = ends(server.put(load, **LONG, stream=stream))
    assert set(found) == {"left"}
    assert found["left"] > clients / 2
    until(lambda: server.idle)
    after = server.counts()
    counted = grown(before, after, "attendo_cancelled_total", "attendo_requests_total")
    assert counted["attendo_cancelled_total",] == found["left"]
    assert {key: value for key, value in counted.items() if ROUTE in key} == {
        ("attendo_requests_total", ROUTE, "499"): found["left"]
    }
    assert ends(server.answers(["the cat"], 1)) == {200: 1}
    written = grown(after, server.counts(), "attendo_target_tokens_total")
    assert sum(written.values()) < 100  # those of the answer, and nothing of what nobody waits for


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        pytest.param("own", {"beam": 3}, id="beam"),
        pytest.param("libretranslate", {}, id="libretranslate", marks=pytest.mark.slow),
        pytest.param("openai", {}, id="stream", marks=pytest.mark.slow),
    ],
)
def test_S12_texts_are_the_same_under_load(server: Loaded, api: Api, fields: dict[str, Any]) -> None:
    same(server, sentences(20), 10, api, fields)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["own", "libretranslate", "openai"])
def test_S12_five_hundred_texts_are_the_same_under_load(patient: Loaded, api: Api) -> None:
    same(patient, sentences(500, longest=20), 32, api, {})


def same(server: Loaded, texts: list[str], clients: int, api: Api, fields: dict[str, Any]) -> None:
    alone = server.answers(texts, 1, api, **fields)
    together = server.answers(texts, clients, api, **fields)
    assert ends(alone) == ends(together) == {200: len(texts)}
    said = [each.response.text for each in alone if each.response is not None]
    assert said == [each.response.text for each in together if each.response is not None]
    assert len(set(said)) > len(texts) / 4  # a model that says the same to all would prove nothing


def test_S14_counters_are_what_the_client_saw_and_hold_no_text(patient: Loaded) -> None:
    before, routes = patient.counts(), {"own": ROUTE, "libretranslate": "/translate", "openai": "/v1/chat/completions"}
    texts = [f"xylophone-{number} the cat" for number in range(20)]
    leaving = Load(rate=40, seconds=0.5, leaving=1.0, leave_within=0.2, deadline=600)
    expected = Counter[Any](("attendo_requests_total", ROUTE, "499") for _ in patient.put(leaving, texts=texts, **LONG))
    apis: tuple[Api, ...] = ("own", "libretranslate", "openai")
    for api in apis:
        for outcome in patient.put(Load(clients=4, seconds=0.4), api, texts):
            expected["attendo_requests_total", routes[api], str(outcome.status)] += 1
    for outcome in patient.put(Load(clients=2, seconds=0.1), texts=texts, beam=99):
        assert outcome.status == 400
        expected["attendo_requests_total", ROUTE, str(outcome.status)] += 1
    until(lambda: patient.idle)
    counted = grown(before, patient.counts(), "attendo_requests_total")
    assert {key: value for key, value in counted.items() if key[1] in routes.values()} == expected
    told = patient.get("/metrics")
    assert "xylophone" not in told
    assert "127.0.0.1" not in told
    assert not any(" " in value or len(value) > 64 for value in label_values(told))
