"""S7, S10: a deadline frees the engine, and what goes wrong for one is nobody else's trouble."""

import signal
from pathlib import Path
from typing import Any

import pytest
from children import Children
from serving_faults import BAD_WORD
from small_service import LONG, Asking, Service, different
from tiny import tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "model"
    tiny_model().save(place)
    return place


def fault(kind: str, seconds: float = 0.0) -> tuple[str, dict[str, Any]]:
    return "serving_fault", {"kind": kind, "seconds": seconds}


def test_S7_a_deadline_ends_a_long_answer_and_frees_its_place(children: Children, folder: Path) -> None:
    slow = ("slow_steps", {"seconds": 0.01})
    with Service(children, folder, "--deadline", "0.2", before=[slow]) as service:
        service.until_ready()
        late = service.generate(max_length=512, min_length=512)
        assert (late.status, late.code) == (504, "too_late")
        service.until_there(0)
        assert service.generate(max_length=2).status == 200


@pytest.mark.parametrize("kind", ["decoding", "memory", "tokenizer"])
def test_S10_who_is_struck_by_a_fault_is_told_and_nobody_else_is(children: Children, folder: Path, kind: str) -> None:
    with Service(children, folder, before=[fault(kind)]) as service:
        service.until_ready()
        asking = Asking(service, different(8, **LONG))
        service.until_there(8)
        struck = service.generate(BAD_WORD) if kind == "tokenizer" else service.marked()
        assert (struck.status, struck.code) == (500, "failed")
        assert struck.request_id
        assert [each.status for each in asking.answers()] == [200] * 8
        assert service.get("/readyz").status == 200
        service.kill(signal.SIGTERM)
        ended = service.wait()
        assert ended.code == 0
        assert "on purpose" not in ended.errors, "the message of an error may hold what somebody wrote"
        assert "a request failed: " in ended.errors


def test_S10_a_dead_thread_is_told_and_ends_the_process(children: Children, folder: Path) -> None:
    with Service(children, folder, before=[fault("death")]) as service:
        service.until_ready()
        asking = Asking(service, different(4, **LONG))
        service.until_there(4)
        struck = service.marked()
        assert (struck.status, struck.code) == (503, "stopped")
        assert {each.status for each in asking.answers()} <= {200, 503}
        ended = service.wait()
        assert ended.code == 70
        assert "died: this process ends with 70" in ended.errors


@pytest.mark.parametrize(
    "options", [("--set", "hang_seconds=4"), pytest.param((), marks=[pytest.mark.slow, pytest.mark.timeout(120)])]
)
def test_S10_a_thread_that_hangs_is_told_and_ends_the_process(
    children: Children, folder: Path, options: tuple[str, ...]
) -> None:
    with Service(children, folder, "--deadline", "0.5", *options, before=[fault("hang", 100.0)]) as service:
        service.until_ready()
        assert service.marked().status == 504
        # Whoever asks now waits for a thread that does nothing.
        waiting = Asking(service, [{"texts": ["the cat sat"]} for _ in range(40)])
        service.until(lambda: service.get("/readyz").content == {"ready": False, "reason": "hanging"})
        assert service.get("/livez").status == 200
        ended = service.wait()
        assert ended.code == 70
        assert "has done nothing for" in ended.errors
        assert 200 not in {each.status for each in waiting.answers()}


def test_S10_a_hang_that_passes_leaves_a_server_that_answers(children: Children, folder: Path) -> None:
    with Service(children, folder, "--deadline", "30", before=[fault("hang", 0.3)]) as service:
        service.until_ready()
        assert service.marked().status == 200
        assert service.get("/readyz").status == 200
