"""The load client reports the outcome of every request."""

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
from attendo.bench.load_test.apis import OpenAIAdapter, ParsedResponse, make_adapter
from attendo.bench.load_test.http_client import Address, HttpClient, HttpRequest, HttpResponse, ResponseListener
from attendo.bench.load_test.load import Load, LoadClient, RequestOutcome, run_load
from attendo.bench.load_test.report import (
    ConsistencyResult,
    LatencyStats,
    LoadMeasurement,
    LoadSummary,
    LoadTestPlan,
    check_consistency,
    run_load_test,
    wait_until_ready,
)
from attendo.bench.load_test.server import ServerError, load_texts
from attendo.errors import DataError, UsageError

TEXTS = ("the cat sat", "a dog ran home")


def send_load(
    load: Load, url: str, api: Any = "libretranslate", texts: Sequence[str] = TEXTS, **more: Any
) -> list[RequestOutcome]:
    async def work() -> list[RequestOutcome]:
        client = HttpClient(Address.parse(url))
        try:
            return await run_load(client, await make_adapter(api, client, more), texts, load)
        finally:
            await client.close()

    return asyncio.run(work())


def collect(made: Callable[[], Any]) -> list[Any]:
    async def work() -> list[Any]:
        return [each async for each in made()]

    return asyncio.run(work())


def test_load_test_does_not_import_torch() -> None:
    code = "import sys, attendo.bench.load_test.report, attendo.cli.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_clients_send_the_next_request_after_a_response() -> None:
    stand_in = StandIn(delay=0.02)
    with listening(stand_in) as url:
        found = send_load(Load(clients=3, seconds=0.3), url)
    assert stand_in.busiest == 3
    assert len(found) == len(stand_in.asked) > 3
    assert {each.end for each in found} == {"answered"}
    assert {each.status for each in found} == {200}
    assert [each.due for each in found] == sorted(each.due for each in found)
    assert all(each.response is not None and each.response.text == TEXTS[each.text_index].upper() for each in found)
    assert {each.text_index for each in found} == {0, 1}


@pytest.mark.slow
def test_garbage_collection_is_frozen_during_the_load() -> None:
    """A full collection would take longer than many responses and count as server time."""
    freeze_counts: list[int] = []

    class RecordingServer(StandIn):
        async def _work(self, *arguments: Any) -> None:
            freeze_counts.append(gc.get_freeze_count())
            await super()._work(*arguments)

    with listening(RecordingServer()) as url:
        assert {each.end for each in send_load(Load(clients=1, seconds=0.1), url)} == {"answered"}
    assert freeze_counts[-1] > 10_000
    assert gc.get_freeze_count() == 0


@pytest.mark.slow
def test_open_loop_requests_do_not_wait_for_the_server() -> None:
    stand_in, load = StandIn(delay=1.5), Load(rate=100, seconds=0.3)  # no response before the last arrival
    with listening(stand_in) as url:
        found = send_load(load, url)
    planned = [each.due for each in load.schedule_requests(2)]
    assert len(planned) == len(found) == len(stand_in.asked) == stand_in.busiest
    assert [each.due for each in found] == planned
    assert all(each.seconds >= 1.5 for each in found)


def test_arrivals_are_determined_by_seed_and_rate() -> None:
    load = Load(rate=200, seconds=10, leaving=0.25, leave_within=0.1)
    plans = list(load.schedule_requests(7))
    assert plans == list(load.schedule_requests(7))
    assert plans != list(Load(rate=200, seconds=10, leaving=0.25, leave_within=0.1, seed=2).schedule_requests(7))
    assert abs(len(plans) - 2000) < 200
    gaps = [after.due - before.due for before, after in pairwise(plans)]
    assert abs(sum(gap > 1 / 200 for gap in gaps) / len(gaps) - 0.368) < 0.05  # exponential distribution
    leaving = [each.leaves_after for each in plans if each.leaves_after is not None]
    assert abs(len(leaving) / len(plans) - 0.25) < 0.05
    assert 0 <= min(leaving) < max(leaving) <= 0.1
    assert {each.text_index for each in plans} == set(range(7))


@pytest.mark.slow
def test_rejected_requests_are_counted_by_status() -> None:
    with listening(StandIn(delay=0.1, most=1)) as url:
        load = Load(rate=100, seconds=0.3)
        summary = LoadSummary.from_outcomes(send_load(load, url), load.seconds)
    assert summary.offered == summary.answered + summary.rejected[429]
    assert summary.answered >= 2
    assert summary.rejected[429] > summary.answered
    assert summary.rejection is not None
    assert summary.late == summary.left == summary.failed == 0


def test_requests_past_the_deadline_are_cancelled() -> None:
    stand_in = StandIn(delay=PATIENCE)
    with listening(stand_in) as url:
        found = send_load(Load(clients=2, seconds=0.1, deadline=0.15), url)
        assert [each.end for each in found] == ["late", "late"]
        assert all(each.status is None for each in found)
        wait_until(lambda: stand_in.left == 2)


@pytest.mark.slow
def test_some_clients_leave_and_the_server_notices() -> None:
    stand_in = StandIn(delay=PATIENCE)
    with listening(stand_in) as url:
        load = Load(rate=100, seconds=0.3, leaving=0.5, leave_within=0.1, deadline=1)
        summary = LoadSummary.from_outcomes(send_load(load, url), load.seconds)
        assert summary.left == sum(each.leaves_after is not None for each in load.schedule_requests(2))
        assert 0 < summary.left < summary.offered
        assert summary.left + summary.late == summary.offered
        wait_until(lambda: stand_in.left == summary.offered)


def test_a_response_before_the_client_leaves_counts() -> None:
    with listening(StandIn()) as url:
        found = send_load(Load(clients=1, seconds=0.1, leaving=1.0, leave_within=5), url)
    assert {each.end for each in found} == {"answered"}


def test_a_stream_reports_first_token_time_and_token_count() -> None:
    with listening(stand_in := StandIn()) as url:
        (found,) = send_load(Load(clients=1, seconds=0.04), url, "openai", ["the cat sat"])
    assert found.response == ParsedResponse("THE CAT SAT ", 3)
    assert found.first_token_seconds is not None
    assert 0 < found.first_token_seconds < found.seconds  # three more events come after it
    assert stand_in.asked[0]["model"] == "small"
    assert stand_in.asked[0]["stream"] is True


def test_a_broken_stream_has_failed() -> None:
    with listening(StandIn(breaks_off=True)) as url:
        (found,) = send_load(Load(clients=1, seconds=0.04), url, "openai", ["the cat sat"])
    assert (found.end, found.response, found.reason) == ("failed", None, "the stream broke off")


def test_text_in_a_split_event_is_detected() -> None:
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
        return (await client.send("the", 0.0, PATIENCE)).first_token_seconds

    assert asyncio.run(first_token()) is not None


def test_a_stream_that_ends_in_an_error_has_failed() -> None:
    body = b'data: {"choices": []}\n\ndata: {"error": {"code": "too_late"}}\n\n'
    with pytest.raises(ValueError, match="ended in an error"):
        OpenAIAdapter().parse_response(body)


def test_the_attendo_api_reports_tokens_and_accepts_more_fields() -> None:
    with listening(stand_in := StandIn()) as url:
        found = send_load(Load(clients=1, seconds=0.04), url, "own", ["the cat"], beam=4)
    assert found[0].response == ParsedResponse("THE CAT", 2)
    assert stand_in.asked[0] == {"texts": ["the cat"], "beam": 4}


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("more", "pair"),
    [({}, ("en", "zh")), ({"source": "de"}, ("de", "en")), ({"source": "fr", "target": "en"}, ("fr", "en"))],
)
def test_the_default_languages_are_the_first_served(more: dict[str, str], pair: tuple[str, str]) -> None:
    with listening(stand_in := StandIn()) as url:
        send_load(Load(clients=1, seconds=0.04), url, **more)
    assert (stand_in.asked[0]["source"], stand_in.asked[0]["target"]) == pair


def test_a_language_that_is_not_served_is_a_usage_error() -> None:
    with (
        listening(StandIn()) as url,
        pytest.raises(UsageError, check=has_code("server_lists_no_model", path="/languages")),
    ):
        send_load(Load(clients=1, seconds=0.04), url, source="fr")


def test_a_response_without_a_translation_has_failed() -> None:
    with listening(StandIn(nonsense=True)) as url:
        found = send_load(Load(clients=1, seconds=0.04), url)
    assert found[0].end == "failed"
    assert found[0].reason == "there is no translatedText in the answer"


@pytest.mark.slow
def test_an_unreachable_server_is_an_error() -> None:
    with listening(StandIn()) as url:
        pass
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:\d+ cannot be reached: "):
        send_load(Load(clients=1, seconds=0.04), url)
    (found, *_) = send_load(Load(clients=1, seconds=0.04), url, source="en", target="zh")
    assert found.end == "failed"
    assert "cannot be reached" in found.reason
    with pytest.raises(ServerError, match="is not ready: 127"):
        asyncio.run(wait_until_ready(url, seconds=0.2))


def test_connections_are_reused_and_stale_ones_replaced() -> None:
    request_counts: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers two requests per connection, then closes it like an idle connection."""
        request_counts.append(0)
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            request_counts[-1] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    async def work() -> list[int]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
        statuses = [(await client.send(HttpRequest("/"))).status for _ in range(4)]
        await client.close()
        server.close()
        return statuses

    assert asyncio.run(work()) == [200] * 4
    assert request_counts == [2, 2]


@pytest.mark.parametrize("url", ["https://127.0.0.1", "http://", "127.0.0.1:x", "ftp://a"])
def test_an_invalid_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, check=has_code("server_address_invalid")):
        Address.parse(url)


def test_addresses_are_parsed() -> None:
    assert Address.parse("http://[::1]:8000/a/") == Address("::1", 8000, "/a")
    assert Address.parse("http://[::1]:8000").name == "[::1]:8000"
    assert Address.parse("localhost:8000").name == "localhost:8000"
    assert Address.parse("http://host").port == 80


@pytest.mark.parametrize(
    "given",
    [{}, {"rate": 1, "clients": 1}, {"rate": 0}, {"clients": 1, "seconds": 0}, {"clients": 1, "leaving": 1.5}],
)
def test_an_invalid_load_is_a_usage_error(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Load(**given)


def test_latency_percentiles_are_observed_values() -> None:
    spread = LatencyStats.from_seconds([n / 100 for n in range(100, 0, -1)])
    assert spread == LatencyStats(0.5, 0.9, 0.99, 1.0)
    assert LatencyStats.from_seconds([3.0]) == LatencyStats(3.0, 3.0, 3.0, 3.0)
    assert LatencyStats.from_seconds([]) is None


def test_throughput_counts_only_responses_during_the_load() -> None:
    ends = (0.5, 1.5, 1.9, 2.5)
    outcomes = [RequestOutcome("answered", 0.0, over, 200, response=ParsedResponse("x", 10)) for over in ends]
    summary = LoadSummary.from_outcomes([*outcomes, RequestOutcome("rejected", 0.0, 0.1, 429)], 2.0)
    assert (summary.requests_per_second, summary.tokens_per_second) == (1.5, 15.0)
    assert summary.latency == LatencyStats(1.5, 2.5, 2.5, 2.5)
    assert (summary.offered, summary.answered, summary.rejected) == (5, 4, {429: 1})


@pytest.mark.slow
def test_servers_and_loads_alternate_and_are_compared() -> None:
    quick, slow = StandIn(delay=0.03), StandIn(delay=0.12)  # much longer than the processor time of a request
    with listening(quick) as one, listening(slow) as other:
        loads = [Load(clients=1, seconds=0.6), Load(clients=4, seconds=0.6)]
        plan = LoadTestPlan({"quick": one, "slow": other}, loads, TEXTS, rounds=2, warm_up=0.05)
        found = collect(lambda: run_load_test(plan))
    progress = [each.text for each in found if isinstance(each, Progress)]
    assert progress[:4] == [
        "quick: warming up",
        "slow: warming up",
        "round 1 of 2: quick, 1 client",
        "round 1 of 2: slow, 1 client",
    ]
    assert progress[6] == "round 2 of 2: slow, 1 client"
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
    assert results[3].beside_first_load > 2  # the server handles four requests at once
    assert results[1].first_beside_it is not None
    assert results[1].first_beside_it > 1.5
    assert all(len(each.rounds) == 2 for each in results)
    # All rounds are counted; their rates are not summed.
    assert results[0].summary.answered == pytest.approx(0.6 * sum(results[0].rounds), abs=3)


@pytest.mark.short(1)
@pytest.mark.parametrize("wrong", [False, True])
def test_S12_texts_that_differ_under_load_are_found(wrong: bool) -> None:
    texts = [f"text {n}" for n in range(20)]
    with listening(StandIn(delay=0.01, wrong_when_busy=wrong)) as url:
        (found,) = collect(lambda: check_consistency(LoadTestPlan({"server": url}, [Load(clients=1)], texts), 4))
    assert isinstance(found, ConsistencyResult)
    assert found.equal is not wrong
    assert (found.texts, found.clients, found.unanswered) == (20, 4, 0)
    assert bool(found.different) is wrong
    assert all(under_load == "wrong" and alone == text.upper() for text, alone, under_load in found.different)


def test_S12_unanswered_texts_are_not_equal() -> None:
    with listening(StandIn(status=503)) as url:
        (found,) = collect(lambda: check_consistency(LoadTestPlan({"server": url}, [Load(clients=1)], TEXTS), 2))
    assert (found.unanswered, found.equal) == (2, False)


def test_texts_come_from_a_file_or_the_built_in_task(tmp_path: Any) -> None:
    (tmp_path / "lines").write_text("one\n\n two \nthree\n", "utf-8")
    assert load_texts(tmp_path / "lines", 2) == ["one", " two "]
    assert len(set(load_texts(None, 50))) > 40
    (tmp_path / "empty").write_text("\n", "utf-8")
    with pytest.raises(DataError, check=has_code("file_has_no_text")):
        load_texts(tmp_path / "empty")


def wait_until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.01)
