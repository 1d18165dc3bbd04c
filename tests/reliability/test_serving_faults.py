"""S7, S10: a deadline frees its slot, and a fault affects only its own request."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from children import Children
from error_codes import fragment
from serving_faults import BAD_WORD, MARK
from small_service import LONG, ConcurrentRequests, Service, distinct_requests
from tiny import tiny_model

MARKED = {"max_length": MARK, "min_length": MARK}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model"
    tiny_model().save(path)
    return path


def hold_steps_job(file: Path) -> tuple[str, dict[str, str]]:
    return "hold_steps", {"file": str(file)}


def fault_job(kind: str, seconds: float = 0.0) -> tuple[str, dict[str, Any]]:
    return "serving_fault", {"kind": kind, "seconds": seconds}


def test_S7_deadline_ends_a_long_request_and_frees_its_slot(children: Children, folder: Path) -> None:
    """Steps are so slow that a slot that is not freed would be taken for longer than the test waits."""
    assert exceed_deadline(children, folder, 1, seconds_per_step=1.0)


@pytest.mark.slow
def test_S7_timeout_is_returned_100_ms_after_the_deadline(children: Children, folder: Path) -> None:
    """The best of 20 counts, because the machine may be busy."""
    assert min(exceed_deadline(children, folder, 20, seconds_per_step=0.01)) <= 0.3


def exceed_deadline(children: Children, folder: Path, times: int, seconds_per_step: float) -> list[float]:
    """Seconds until a request for 512 tokens gets 504."""
    slow, elapsed = ("slow_steps", {"seconds": seconds_per_step, "longest": 512}), []
    with Service(children, folder, "--deadline", "0.2", before=[slow]) as service:
        service.wait_until_ready()
        for _ in range(times):
            begin = time.monotonic()
            late = service.generate(max_length=512, min_length=512)
            elapsed.append(time.monotonic() - begin)
            assert (late.status, late.code) == (504, "too_late")
            service.wait_for_requests(0)
            service.wait_until_batch_is_empty()
            # On a busy machine some of these miss the deadline too.
            service.wait_until(lambda: service.generate(max_length=2).status == 200)
    return elapsed


@pytest.mark.parametrize(
    "kind", ["decoding", *(pytest.param(each, marks=pytest.mark.slow) for each in ("memory", "tokenizer"))]
)
def test_S10_fault_fails_only_its_own_request(children: Children, folder: Path, tmp_path: Path, kind: str) -> None:
    hold_file = tmp_path / "held"
    with Service(children, folder, before=[hold_steps_job(hold_file), fault_job(kind)]) as service:
        service.wait_until_ready()
        hold_file.touch()
        requests = ConcurrentRequests(service, distinct_requests(8, **LONG))
        service.wait_for_requests(8)
        faulty_requests = ConcurrentRequests(
            service, [{"texts": [BAD_WORD]} if kind == "tokenizer" else {"texts": ["a dog"], **MARKED}]
        )
        if kind != "tokenizer":  # that fault comes before the request is queued
            service.wait_for_requests(9)
        hold_file.unlink()
        (failed,) = faulty_requests.responses()
        assert (failed.status, failed.code) == (500, "failed")
        assert failed.request_id
        concurrent, alone = (
            scores_by_text(requests),
            scores_by_text(ConcurrentRequests(service, distinct_requests(8, **LONG))),
        )
        assert concurrent.keys() == alone.keys()
        assert concurrent == pytest.approx(alone, abs=1e-4)
        assert service.get("/readyz").status == 200
        service.kill(signal.SIGTERM)
        ended = service.wait()
        assert ended.code == 0
        assert "on purpose" not in ended.errors, "the message of an error may contain user text"
        assert "a request failed: " in ended.errors


def scores_by_text(requests: ConcurrentRequests) -> dict[tuple[int, str], float]:
    """The scores of all responses, by number and text. All must be 200."""
    responses = requests.responses()
    assert {each.status for each in responses} == {200}
    results = [each.content["results"][0] for each in responses]
    return {(number, each["text"]): each["score"] for number, each in enumerate(results)}


@pytest.mark.slow
def test_S10_dead_thread_ends_the_process(children: Children, folder: Path, tmp_path: Path) -> None:
    hold_file = tmp_path / "held"
    with Service(children, folder, before=[hold_steps_job(hold_file), fault_job("death")]) as service:
        service.wait_until_ready()
        hold_file.touch()
        requests = ConcurrentRequests(service, distinct_requests(4, **LONG))
        service.wait_for_requests(4)
        hold_file.unlink()
        failed = service.trigger_fault()
        assert (failed.status, failed.code) == (503, "stopped")
        assert {each.status for each in requests.responses()} <= {200, 503}
        ended = service.wait()
        assert ended.code == 70
        assert "died: this process ends with 70" in ended.errors


@pytest.mark.slow
def test_S10_hung_thread_ends_the_process(children: Children, folder: Path) -> None:
    make_server_hang(children, folder, "--set", "watchdog_seconds=3")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_S10_thread_hung_for_30_s_ends_the_process(children: Children, folder: Path) -> None:
    """A thread counts as hung after nearly 2 s without a step, so /readyz reports it within 2 s."""
    reported, ended = make_server_hang(children, folder, "--set", "watchdog_seconds=30")
    assert reported >= 1.9
    assert ended >= 30


def make_server_hang(children: Children, folder: Path, *options: str) -> tuple[float, float]:
    """Seconds from the request that hangs to 503 from /readyz, and to the end of the process."""
    with Service(children, folder, "--deadline", "0.5", *options, before=[fault_job("hang", 100.0)]) as service:
        service.wait_until_ready()
        begin = time.monotonic()
        assert service.trigger_fault().status == 504
        # These requests wait for a thread that hangs.
        waiting = ConcurrentRequests(service, [{"texts": ["the cat sat"]} for _ in range(40)])
        service.wait_until(lambda: service.get("/readyz").content == {"ready": False, "reason": "hanging"})
        reported = time.monotonic() - begin
        assert service.get("/livez").status in (200, 0)  # on a busy machine the process may have ended by now
        ended = service.wait()
        elapsed = time.monotonic() - begin
        assert ended.code == 70
        assert fragment("worker_thread_hung") in ended.errors
        assert 200 not in {each.status for each in waiting.responses()}
        return reported, elapsed


@pytest.mark.slow
def test_S10_slow_steps_are_not_a_hang(children: Children, folder: Path) -> None:
    with Service(children, folder, before=[fault_job("hang", 0.1)]) as service:
        service.wait_until_ready()
        assert service.trigger_fault().status == 200
        assert service.get("/readyz").status == 200


@pytest.mark.slow
def test_S10_server_recovers_from_a_hang_of_5_s(children: Children, folder: Path) -> None:
    with Service(children, folder, "--deadline", "3", before=[fault_job("hang", 5.0)]) as service:
        service.wait_until_ready()
        expected = service.generate("the cat sat", max_length=5)
        failed = ConcurrentRequests(service, [{"texts": ["the cat sat"], **MARKED}])
        service.wait_until(lambda: service.get("/readyz").content == {"ready": False, "reason": "hanging"})
        assert [(each.status, each.code) for each in failed.responses()] == [(504, "too_late")]
        service.wait_until_ready()
        assert expected.status == 200
        assert service.generate("the cat sat", max_length=5).content == expected.content
