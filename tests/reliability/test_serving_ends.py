"""S8, S9: a server that is told to end answers whoever is there; one that was killed begins anew."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from children import Children, Job
from loaded_server import Loaded, until
from small_service import LONG, Asking, Service, different
from tiny import tiny_model

from attendo.bench.load_test import Load, start_server

SLOW: tuple[str, dict[str, float]] = ("slow_steps", {"seconds": 0.01})
VERY_SLOW: tuple[str, dict[str, float]] = ("slow_steps", {"seconds": 0.1})
ENDLESS = {"min_length": 512, "max_length": 512}  # with very slow steps nearly a minute
TRIES = 3  # of what is timed, of which the best counts: others may be computing too


def hold(file: Path) -> Job:
    return "hold_steps", {"file": str(file)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "model"
    tiny_model().save(place)
    return place


def test_S8_told_to_end_it_answers_all_who_are_there_and_takes_nothing_new(
    children: Children, folder: Path, tmp_path: Path
) -> None:
    told_to_end(children, folder, tmp_path / "held")


@pytest.mark.slow
def test_S8_it_says_so_within_a_tenth_of_a_second_and_ends_within_ten(
    children: Children, folder: Path, tmp_path: Path
) -> None:
    tries = [told_to_end(children, folder, tmp_path / "held", SLOW) for _ in range(TRIES)]
    notices, ends = zip(*tries, strict=True)
    assert min(notices) <= 0.1
    assert min(ends) <= 10


def told_to_end(children: Children, folder: Path, held: Path, *faults: Job) -> tuple[float, float]:
    """Seconds from the signal to /readyz saying so, and to the end of the process."""
    with Service(children, folder, before=[hold(held), *faults]) as service:
        service.until_ready()
        held.touch()
        asking = Asking(service, different(20, **LONG))
        service.until_there(20)
        begin = time.monotonic()
        service.kill(signal.SIGTERM)
        service.until(lambda: service.get("/readyz").status != 200)
        noticed = time.monotonic() - begin
        told, refused = service.get("/readyz"), service.generate()
        assert (told.status, told.content) == (503, {"ready": False, "reason": "draining"})
        assert (refused.status, refused.code) == (503, "draining")
        held.unlink()
        assert [each.status for each in asking.answers()] == [200] * 20
        ended = service.wait()
        assert ended.code == 0, ended.errors
        assert service.get("/livez").status == 0
        return noticed, time.monotonic() - begin


@pytest.mark.slow
def test_S8_who_would_take_too_long_is_told_so(children: Children, folder: Path) -> None:
    with Service(children, folder, "--set", "drain_seconds=1", before=[VERY_SLOW]) as service:
        service.until_ready()
        asking = Asking(service, different(3, **ENDLESS))
        service.until_there(3)
        service.kill(signal.SIGTERM)
        assert [(each.status, each.code) for each in asking.answers()] == [(503, "draining")] * 3
        assert service.wait().code == 0


@pytest.mark.short(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_S8_told_twice_it_ends_at_once(children: Children, folder: Path, number: int) -> None:
    told_twice(children, folder, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_S8_told_twice_it_ends_within_a_second(children: Children, folder: Path, number: int) -> None:
    assert min(told_twice(children, folder, number) for _ in range(TRIES)) <= 1


def told_twice(children: Children, folder: Path, number: int) -> float:
    """Seconds from the second signal to the end of the process."""
    with Service(children, folder, before=[VERY_SLOW]) as service:
        service.until_ready()
        asking = Asking(service, different(3, **ENDLESS))
        service.until_there(3)
        service.kill(number)
        service.until(lambda: service.get("/readyz").status != 200)
        begin = time.monotonic()
        service.kill(number)
        assert service.wait().code == 128 + number
        taken = time.monotonic() - begin
        assert 200 not in [each.status for each in asking.answers()]
        return taken


@pytest.mark.slow
def test_S8_told_to_end_it_waits_for_documents_and_hands_them_out(children: Children, folder: Path) -> None:
    """Whoever brought one asks every few seconds, each time on a new connection."""
    with Service(children, folder, "--languages", "en-zh", before=[VERY_SLOW]) as service:
        service.until_ready()
        first, second = service.upload("the cat sat\n"), service.upload("a small dog\n" * 3)
        assert (first.status, second.status) == (200, 200)
        begin = time.monotonic()
        service.kill(signal.SIGTERM)
        service.until(lambda: service.get("/readyz").status != 200)
        time.sleep(max(0.0, begin + 1.0 - time.monotonic()))  # by now nobody would be listened to, were it not for them
        assert service.upload("the cat sat\n").code == "draining"
        assert service.generate().code == "draining"
        for given in (first, second):
            service.until(lambda given=given: service.asked_after(given).content["status"] == "done")
            assert service.asked_after(given, "/result").status == 200
        ended = service.wait()
        assert (ended.code, "Traceback" in ended.errors) == (0, False)


@pytest.mark.slow
def test_S8_documents_that_nobody_comes_for_do_not_keep_it(children: Children, folder: Path) -> None:
    options = ("--languages", "en-zh", "--set", "drain_seconds=1")
    with Service(children, folder, *options, before=[VERY_SLOW]) as service:
        service.until_ready()
        assert service.upload("the cat sat\n" * 500).status == 200
        service.kill(signal.SIGTERM)
        ended = service.wait()
        assert (ended.code, "Traceback" in ended.errors) == (0, False)


def test_S8_with_nobody_there_it_ends_as_well(children: Children, folder: Path) -> None:
    with Service(children, folder) as service:
        service.until_ready()
        service.kill(signal.SIGINT)
        ended = service.wait()
        assert ended.code == 0
        assert "Traceback" not in ended.errors


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_S9_killed_under_load_it_begins_anew_with_the_same_answers(
    children: Children, folder: Path, tmp_path: Path, kills: int
) -> None:
    expected, files = None, content_of(folder)
    documents, held = ("--set", f"documents_folder={tmp_path}"), tmp_path.with_name(f"{tmp_path.name}-held")
    for _ in range(kills + 1):
        with Service(children, folder, *documents, before=[hold(held)]) as service:
            service.until_ready()
            answer = service.generate("the cat sat").content
            assert answer == (expected or answer)
            expected = answer
            held.touch()
            asking = Asking(service, different(8, **LONG))
            service.until_there(8)
            service.kill(signal.SIGKILL)
            assert service.wait().code == -signal.SIGKILL
            assert [each.status for each in asking.answers()] == [0] * 8
            assert content_of(folder) == files
            assert content_of(tmp_path) == {}
            held.unlink()


@pytest.mark.slow
def test_S9_it_is_ready_within_ten_seconds_of_being_started_again(folder: Path) -> None:
    assert min(ready_after_a_kill(folder) for _ in range(TRIES)) <= 10


def ready_after_a_kill(folder: Path) -> float:
    """Seconds in which a process that has to import everything first can be asked, on the port of one that was killed.

    As whoever looks after a server would start it: `started` yields when all models have answered once.
    """
    with start_server([folder], "--threads", "1") as first:
        port, loaded = first.url.rpartition(":")[2], Loaded(first)
        load = threading.Thread(target=loaded.put, args=(Load(clients=8, seconds=1),), kwargs=LONG)
        load.start()
        until(lambda: loaded.number("attendo_running_requests") > 0)
        os.kill(first.pid, signal.SIGKILL)
        begin = time.monotonic()
        with start_server([folder], "--threads", "1", "--port", port) as second:
            again = Loaded(second)
            assert '"ready":true' in again.get("/readyz")
            taken = time.monotonic() - begin
            load.join()
            assert {each.status for each in again.put(Load(clients=8, seconds=0.2))} == {200}
    return taken


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
