"""S7, S10: a deadline frees the engine, and what goes wrong for one is nobody else's trouble."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from children import Children
from error_codes import fragment
from serving_faults import BAD_WORD, MARK
from small_service import LONG, Asking, Service, different
from tiny import tiny_model

MARKED = {"max_length": MARK, "min_length": MARK}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "model"
    tiny_model().save(place)
    return place


def hold(file: Path) -> tuple[str, dict[str, str]]:
    return "hold_steps", {"file": str(file)}


def fault(kind: str, seconds: float = 0.0) -> tuple[str, dict[str, Any]]:
    return "serving_fault", {"kind": kind, "seconds": seconds}


def test_S7_a_deadline_ends_a_long_answer_and_frees_its_place(children: Children, folder: Path) -> None:
    """Its steps are so slow that a place which is not freed stays taken for longer than the test waits."""
    assert too_late(children, folder, 1, seconds_a_step=1.0)


@pytest.mark.slow
def test_S7_it_is_told_within_a_tenth_of_a_second_of_the_deadline(children: Children, folder: Path) -> None:
    """The least of some: others may be computing too."""
    assert min(too_late(children, folder, 20, seconds_a_step=0.01)) <= 0.3


def too_late(children: Children, folder: Path, times: int, seconds_a_step: float) -> list[float]:
    """Seconds in which those are told of it who ask for 512 tokens."""
    slow, taken = ("slow_steps", {"seconds": seconds_a_step, "longest": 512}), []
    with Service(children, folder, "--deadline", "0.2", before=[slow]) as service:
        service.until_ready()
        for _ in range(times):
            begin = time.monotonic()
            late = service.generate(max_length=512, min_length=512)
            taken.append(time.monotonic() - begin)
            assert (late.status, late.code) == (504, "too_late")
            service.until_there(0)
            service.until_nothing_is_computed()
            # On a busy machine some of these are late, too.
            service.until(lambda: service.generate(max_length=2).status == 200)
    return taken


@pytest.mark.parametrize(
    "kind", ["decoding", *(pytest.param(each, marks=pytest.mark.slow) for each in ("memory", "tokenizer"))]
)
def test_S10_who_is_struck_by_a_fault_is_told_and_nobody_else_is(
    children: Children, folder: Path, tmp_path: Path, kind: str
) -> None:
    held = tmp_path / "held"
    with Service(children, folder, before=[hold(held), fault(kind)]) as service:
        service.until_ready()
        held.touch()
        asking = Asking(service, different(8, **LONG))
        service.until_there(8)
        struck_one = Asking(service, [{"texts": [BAD_WORD]} if kind == "tokenizer" else {"texts": ["a dog"], **MARKED}])
        if kind != "tokenizer":  # that strikes before there is a place for it
            service.until_there(9)
        held.unlink()
        (struck,) = struck_one.answers()
        assert (struck.status, struck.code) == (500, "failed")
        assert struck.request_id
        beside, alone = said(asking), said(Asking(service, different(8, **LONG)))
        assert beside.keys() == alone.keys()
        assert beside == pytest.approx(alone, abs=1e-4)
        assert service.get("/readyz").status == 200
        service.kill(signal.SIGTERM)
        ended = service.wait()
        assert ended.code == 0
        assert "on purpose" not in ended.errors, "the message of an error may hold what somebody wrote"
        assert "a request failed: " in ended.errors


def said(asking: Asking) -> dict[tuple[int, str], float]:
    """Scores by the texts of all who asked, who were all answered."""
    answers = asking.answers()
    assert {each.status for each in answers} == {200}
    results = [each.content["results"][0] for each in answers]
    return {(number, each["text"]): each["score"] for number, each in enumerate(results)}


@pytest.mark.slow
def test_S10_a_dead_thread_is_told_and_ends_the_process(children: Children, folder: Path, tmp_path: Path) -> None:
    held = tmp_path / "held"
    with Service(children, folder, before=[hold(held), fault("death")]) as service:
        service.until_ready()
        held.touch()
        asking = Asking(service, different(4, **LONG))
        service.until_there(4)
        held.unlink()
        struck = service.marked()
        assert (struck.status, struck.code) == (503, "stopped")
        assert {each.status for each in asking.answers()} <= {200, 503}
        ended = service.wait()
        assert ended.code == 70
        assert "died: this process ends with 70" in ended.errors


@pytest.mark.slow
def test_S10_a_thread_that_hangs_is_told_and_ends_the_process(children: Children, folder: Path) -> None:
    hung(children, folder, "--set", "watchdog_seconds=3")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_S10_a_thread_that_hangs_for_half_a_minute_is_the_end(children: Children, folder: Path) -> None:
    """A hang is one when nearly two seconds have gone without a step, so that whoever looks hears of it within two."""
    told, ended = hung(children, folder, "--set", "watchdog_seconds=30")
    assert told >= 1.9
    assert ended >= 30


def hung(children: Children, folder: Path, *options: str) -> tuple[float, float]:
    """Seconds from the request that makes it hang to /readyz saying so, and to the end of the process."""
    with Service(children, folder, "--deadline", "0.5", *options, before=[fault("hang", 100.0)]) as service:
        service.until_ready()
        begin = time.monotonic()
        assert service.marked().status == 504
        # Whoever asks now waits for a thread that does nothing.
        waiting = Asking(service, [{"texts": ["the cat sat"]} for _ in range(40)])
        service.until(lambda: service.get("/readyz").content == {"ready": False, "reason": "hanging"})
        told = time.monotonic() - begin
        assert service.get("/livez").status in (200, 0)  # on a busy machine it may have ended by now
        ended = service.wait()
        taken = time.monotonic() - begin
        assert ended.code == 70
        assert fragment("worker_thread_hung") in ended.errors
        assert 200 not in {each.status for each in waiting.answers()}
        return told, taken


@pytest.mark.slow
def test_S10_steps_that_take_their_time_are_no_hang(children: Children, folder: Path) -> None:
    with Service(children, folder, before=[fault("hang", 0.1)]) as service:
        service.until_ready()
        assert service.marked().status == 200
        assert service.get("/readyz").status == 200


@pytest.mark.slow
def test_S10_a_hang_of_five_seconds_passes_and_leaves_a_server_that_answers(children: Children, folder: Path) -> None:
    with Service(children, folder, "--deadline", "3", before=[fault("hang", 5.0)]) as service:
        service.until_ready()
        expected = service.generate("the cat sat", max_length=5)
        struck = Asking(service, [{"texts": ["the cat sat"], **MARKED}])
        service.until(lambda: service.get("/readyz").content == {"ready": False, "reason": "hanging"})
        assert [(each.status, each.code) for each in struck.answers()] == [(504, "too_late")]
        service.until_ready()
        assert expected.status == 200
        assert service.generate("the cat sat", max_length=5).content == expected.content
