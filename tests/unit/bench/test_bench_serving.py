"""The load client tells what became of every request, whatever the server does."""

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from error_codes import has_code
from stand_in_server import StandIn, listening
from tiny import PATIENCE

from attendo.bench import Progress
from attendo.bench.load_test import (
    Address,
    ConsistencyResult,
    HttpClient,
    HttpRequest,
    LatencyStats,
    Load,
    LoadMeasurement,
    LoadSummary,
    LoadTestPlan,
    RequestOutcome,
    ServerError,
    check_consistency,
    load_texts,
    make_adapter,
    run_load,
    run_load_test,
    wait_until_ready,
)
from attendo.bench.load_test.apis import OpenAIAdapter, ParsedResponse
from attendo.bench.load_test.http_client import HttpResponse, ResponseListener
from attendo.bench.load_test.load import LoadClient, Timeouts
from attendo.errors import DataError, UsageError

TEXTS = ("the cat sat", "a dog ran home")


def put(
    load: Load, url: str, api: Any = "libretranslate", texts: Sequence[str] = TEXTS, **more: Any
) -> list[RequestOutcome]:
    async def work() -> list[RequestOutcome]:
        wire = HttpClient(Address.parse(url))
        try:
            return await run_load(wire, await make_adapter(api, wire, more), texts, load)
        finally:
            await wire.close()

    return asyncio.run(work())


def all_of(made: Callable[[], Any]) -> list[Any]:
    async def work() -> list[Any]:
        return [each async for each in made()]

    return asyncio.run(work())


def test_nothing_of_it_imports_torch() -> None:
    code = "import sys, attendo.bench.load_test, attendo.cli.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_clients_ask_again_when_they_are_answered() -> None:
    stand_in = StandIn(delay=0.02)
    with listening(stand_in) as url:
        found = put(Load(clients=3, seconds=0.3), url)
    assert stand_in.busiest == 3
    assert len(found) == len(stand_in.asked) > 3
    assert {each.end for each in found} == {"answered"}
    assert {each.status for each in found} == {200}
    assert [each.due for each in found] == sorted(each.due for each in found)
    assert all(each.response is not None and each.response.text == TEXTS[each.text_index].upper() for each in found)
    assert {each.text_index for each in found} == {0, 1}


@pytest.mark.slow
def test_what_there_was_before_is_not_looked_through_while_requests_are_timed() -> None:
    """For what nobody needs any more: it would take longer than many an answer, and count as the server's time."""
    kept: list[int] = []

    class Noting(StandIn):
        async def _work(self, *arguments: Any) -> None:
            kept.append(gc.get_freeze_count())
            await super()._work(*arguments)

    with listening(Noting()) as url:
        assert {each.end for each in put(Load(clients=1, seconds=0.1), url)} == {"answered"}
    assert kept[-1] > 10_000
    assert gc.get_freeze_count() == 0


@pytest.mark.slow
def test_arrivals_come_however_slow_the_server_is_and_count_from_when_they_were_due() -> None:
    stand_in, load = StandIn(delay=1.5), Load(rate=100, seconds=0.3)  # no answer before the last has come
    with listening(stand_in) as url:
        found = put(load, url)
    planned = [each.due for each in load.schedule_requests(2)]
    assert len(planned) == len(found) == len(stand_in.asked) == stand_in.busiest
    assert [each.due for each in found] == planned
    assert all(each.seconds >= 1.5 for each in found)


def test_arrivals_follow_from_the_seed_and_the_rate() -> None:
    load = Load(rate=200, seconds=10, leaving=0.25, leave_within=0.1)
    plans = list(load.schedule_requests(7))
    assert plans == list(load.schedule_requests(7))
    assert plans != list(Load(rate=200, seconds=10, leaving=0.25, leave_within=0.1, seed=2).schedule_requests(7))
    assert abs(len(plans) - 2000) < 200
    gaps = [after.due - before.due for before, after in pairwise(plans)]
    assert abs(sum(gap > 1 / 200 for gap in gaps) / len(gaps) - 0.368) < 0.05  # as exponential ones are
    leaving = [each.leaves_after for each in plans if each.leaves_after is not None]
    assert abs(len(leaving) / len(plans) - 0.25) < 0.05
    assert 0 <= min(leaving) < max(leaving) <= 0.1
    assert {each.text_index for each in plans} == set(range(7))


@pytest.mark.slow
def test_what_is_turned_away_is_counted_by_status() -> None:
    with listening(StandIn(delay=0.1, most=1)) as url:
        load = Load(rate=100, seconds=0.3)
        summary = LoadSummary.from_outcomes(put(load, url), load.seconds)
    assert summary.offered == summary.answered + summary.rejected[429]
    assert summary.answered >= 2
    assert summary.rejected[429] > summary.answered
    assert summary.rejection is not None
    assert summary.late == summary.left == summary.failed == 0


def test_whoever_waits_too_long_hangs_up() -> None:
    stand_in = StandIn(delay=PATIENCE)
    with listening(stand_in) as url:
        found = put(Load(clients=2, seconds=0.1, deadline=0.15), url)
        assert [each.end for each in found] == ["late", "late"]
        assert all(each.status is None for each in found)
        until(lambda: stand_in.left == 2)


@pytest.mark.slow
def test_a_share_of_clients_leaves_and_the_server_sees_it() -> None:
    stand_in = StandIn(delay=PATIENCE)
    with listening(stand_in) as url:
        load = Load(rate=100, seconds=0.3, leaving=0.5, leave_within=0.1, deadline=1)
        summary = LoadSummary.from_outcomes(put(load, url), load.seconds)
        assert summary.left == sum(each.leaves_after is not None for each in load.schedule_requests(2))
        assert 0 < summary.left < summary.offered
        assert summary.left + summary.late == summary.offered
        until(lambda: stand_in.left == summary.offered)


def test_an_answer_that_comes_before_a_client_leaves_is_an_answer() -> None:
    with listening(StandIn()) as url:
        found = put(Load(clients=1, seconds=0.1, leaving=1.0, leave_within=5), url)
    assert {each.end for each in found} == {"answered"}


def test_a_stream_tells_its_first_token_and_its_tokens() -> None:
    with listening(stand_in := StandIn()) as url:
        (found,) = put(Load(clients=1, seconds=0.01), url, "openai", ["the cat sat"])
    assert found.response == ParsedResponse("THE CAT SAT ", 3)
    assert found.first_token_seconds is not None
    assert 0 < found.first_token_seconds < found.seconds  # three more events come after it
    assert stand_in.asked[0]["model"] == "small"
    assert stand_in.asked[0]["stream"] is True


def test_a_stream_that_breaks_off_has_failed() -> None:
    with listening(StandIn(breaks_off=True)) as url:
        (found,) = put(Load(clients=1, seconds=0.01), url, "openai", ["the cat sat"])
    assert (found.end, found.response, found.reason) == ("failed", None, "the stream broke off")


def test_text_in_an_event_that_comes_in_two_parts_is_seen() -> None:
    event = b'data: {"choices": [{"delta": {"content": "the"}}]}\n\n'
    for cut in range(1, len(event) - 3):
        assert not OpenAIAdapter().has_text(event[:cut])
    assert OpenAIAdapter().has_text(event)

    async def first_token() -> float | None:
        async def send(request: HttpRequest, listener: ResponseListener) -> HttpResponse:
            for part in (event[:20], event[20:]):
                listener.on_data(part)
            return HttpResponse(200, {}, event + b"data: [DONE]\n\n")

        client = LoadClient(SimpleNamespace(send=send), OpenAIAdapter())  # type: ignore[arg-type]
        return (await client.send("the", 0.0, Timeouts(PATIENCE))).first_token_seconds

    assert asyncio.run(first_token()) is not None


def test_a_stream_that_ends_in_an_error_has_failed() -> None:
    body = b'data: {"choices": []}\n\ndata: {"error": {"code": "too_late"}}\n\n'
    with pytest.raises(ValueError, match="ended in an error"):
        OpenAIAdapter().parse_response(body)


def test_our_own_api_tells_its_tokens_and_takes_more_fields() -> None:
    with listening(stand_in := StandIn()) as url:
        found = put(Load(clients=1, seconds=0.01), url, "own", ["the cat"], beam=4)
    assert found[0].response == ParsedResponse("THE CAT", 2)
    assert stand_in.asked[0] == {"texts": ["the cat"], "beam": 4}


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("more", "pair"),
    [({}, ("en", "zh")), ({"source": "de"}, ("de", "en")), ({"source": "fr", "target": "en"}, ("fr", "en"))],
)
def test_languages_are_the_first_that_are_served_unless_named(more: dict[str, str], pair: tuple[str, str]) -> None:
    with listening(stand_in := StandIn()) as url:
        put(Load(clients=1, seconds=0.01), url, **more)
    assert (stand_in.asked[0]["source"], stand_in.asked[0]["target"]) == pair


def test_a_language_that_is_not_served_is_told() -> None:
    with (
        listening(StandIn()) as url,
        pytest.raises(UsageError, check=has_code("server_lists_no_model", path="/languages")),
    ):
        put(Load(clients=1, seconds=0.01), url, source="fr")


def test_a_reply_that_is_no_answer_has_failed() -> None:
    with listening(StandIn(nonsense=True)) as url:
        found = put(Load(clients=1, seconds=0.01), url)
    assert found[0].end == "failed"
    assert found[0].reason == "there is no translatedText in the answer"


@pytest.mark.slow
def test_nobody_there_is_told_and_a_server_that_dies_is_counted() -> None:
    with listening(StandIn()) as url:
        pass
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:\d+ cannot be reached: "):
        put(Load(clients=1, seconds=0.01), url)
    (found, *_) = put(Load(clients=1, seconds=0.01), url, source="en", target="zh")
    assert found.end == "failed"
    assert "cannot be reached" in found.reason
    with pytest.raises(ServerError, match="is not ready: 127"):
        asyncio.run(wait_until_ready(url, seconds=0.2))


def test_a_connection_is_used_again_and_a_stale_one_is_not_held_against_the_server() -> None:
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Two answers on a connection, then it closes as if the connection had been idle."""
        asked.append(0)
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            asked[-1] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    async def work() -> list[int]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        wire = HttpClient(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
        statuses = [(await wire.send(HttpRequest("/"))).status for _ in range(4)]
        await wire.close()
        server.close()
        return statuses

    assert asyncio.run(work()) == [200] * 4
    assert asked == [2, 2]


@pytest.mark.parametrize("url", ["https://127.0.0.1", "http://", "127.0.0.1:x", "ftp://a"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(UsageError, check=has_code("server_address_invalid")):
        Address.parse(url)


def test_addresses() -> None:
    assert Address.parse("http://[::1]:8000/a/") == Address("::1", 8000, "/a")
    assert Address.parse("http://[::1]:8000").name == "[::1]:8000"
    assert Address.parse("localhost:8000").name == "localhost:8000"
    assert Address.parse("http://host").port == 80


@pytest.mark.parametrize(
    "given",
    [{}, {"rate": 1, "clients": 1}, {"rate": 0}, {"clients": 1, "seconds": 0}, {"clients": 1, "leaving": 1.5}],
)
def test_a_load_that_cannot_be_meant_is_told(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Load(**given)


def test_percentiles_are_of_what_was_seen() -> None:
    spread = LatencyStats.from_seconds([n / 100 for n in range(100, 0, -1)])
    assert spread == LatencyStats(0.5, 0.9, 0.99, 1.0)
    assert LatencyStats.from_seconds([3.0]) == LatencyStats(3.0, 3.0, 3.0, 3.0)
    assert LatencyStats.from_seconds([]) is None


def test_only_what_is_answered_while_the_load_lasts_counts_for_throughput() -> None:
    ends = (0.5, 1.5, 1.9, 2.5)
    outcomes = [RequestOutcome("answered", 0.0, over, 200, response=ParsedResponse("x", 10)) for over in ends]
    summary = LoadSummary.from_outcomes([*outcomes, RequestOutcome("rejected", 0.0, 0.1, 429)], 2.0)
    assert (summary.requests_per_second, summary.tokens_per_second) == (1.5, 15.0)
    assert summary.latency == LatencyStats(1.5, 2.5, 2.5, 2.5)
    assert (summary.offered, summary.answered, summary.rejected) == (5, 4, {429: 1})


@pytest.mark.slow
def test_servers_and_loads_take_turns_and_are_told_in_relation() -> None:
    quick, slow = StandIn(delay=0.01), StandIn(delay=0.04)
    with listening(quick) as one, listening(slow) as other:
        loads = [Load(clients=1, seconds=0.25), Load(clients=4, seconds=0.25)]
        plan = LoadTestPlan({"quick": one, "slow": other}, loads, TEXTS, rounds=2, warm_up=0.05)
        found = all_of(lambda: run_load_test(plan))
    doing = [each.text for each in found if isinstance(each, Progress)]
    assert doing[:4] == [
        "quick: warming up",
        "slow: warming up",
        "round 1 of 2: quick, 1 client",
        "round 1 of 2: slow, 1 client",
    ]
    assert doing[6] == "round 2 of 2: slow, 1 client"
    results = [each for each in found if isinstance(each, LoadMeasurement)]
    assert [(each.server, each.load) for each in results] == [
        ("quick", "1 client"),
        ("slow", "1 client"),
        ("quick", "4 clients"),
        ("slow", "4 clients"),
    ]
    assert results[0].beside_first_load is None
    assert results[0].first_beside_it is results[2].first_beside_it is None
    assert results[3].beside_first_load is not None
    assert results[3].beside_first_load > 2  # it serves four at once
    assert results[1].first_beside_it is not None
    assert results[1].first_beside_it > 1.5
    assert all(len(each.rounds) == 2 for each in results)
    # All rounds are counted, and their rates are not added up.
    assert results[0].summary.answered == pytest.approx(0.25 * sum(results[0].rounds), abs=3)


@pytest.mark.short(1)
@pytest.mark.parametrize("wrong", [False, True])
def test_S12_texts_that_differ_under_load_are_found(wrong: bool) -> None:
    texts = [f"text {n}" for n in range(20)]
    with listening(StandIn(delay=0.01, wrong_when_busy=wrong)) as url:
        (found,) = all_of(lambda: check_consistency(LoadTestPlan({"server": url}, [Load(clients=1)], texts), 4))
    assert isinstance(found, ConsistencyResult)
    assert found.equal is not wrong
    assert (found.texts, found.clients, found.unanswered) == (20, 4, 0)
    assert bool(found.different) is wrong
    assert all(under_load == "wrong" and alone == text.upper() for text, alone, under_load in found.different)


def test_S12_texts_that_are_not_answered_are_not_equal() -> None:
    with listening(StandIn(status=503)) as url:
        (found,) = all_of(lambda: check_consistency(LoadTestPlan({"server": url}, [Load(clients=1)], TEXTS), 2))
    assert (found.unanswered, found.equal) == (2, False)


def test_texts_come_from_a_file_or_from_the_built_in_task(tmp_path: Any) -> None:
    (tmp_path / "lines").write_text("one\n\n two \nthree\n", "utf-8")
    assert load_texts(tmp_path / "lines", 2) == ["one", " two "]
    assert len(set(load_texts(None, 50))) > 40
    (tmp_path / "empty").write_text("\n", "utf-8")
    with pytest.raises(DataError, check=has_code("file_has_no_text")):
        load_texts(tmp_path / "empty")


def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.01)
