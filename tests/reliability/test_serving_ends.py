"""S8, S9: a server that is told to end answers whoever is there; one that was killed begins anew."""

import signal
from pathlib import Path

import pytest
from children import Children
from small_service import LONG, Asking, Service, different
from tiny import tiny_model

SLOW: tuple[str, dict[str, float]] = ("slow_steps", {"seconds": 0.01})
VERY_SLOW: tuple[str, dict[str, float]] = ("slow_steps", {"seconds": 0.1})
PATIENT = ("--deadline", "60")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "model"
    tiny_model().save(place)
    return place


def test_S8_told_to_end_it_answers_all_who_are_there_and_takes_nothing_new(children: Children, folder: Path) -> None:
    with Service(children, folder, *PATIENT, before=[SLOW]) as service:
        service.until_ready()
        asking = Asking(service, different(20, **LONG))
        service.until_there(20)
        service.kill(signal.SIGTERM)
        service.until(lambda: service.get("/readyz").status != 200)
        told, refused = service.get("/readyz"), service.generate()
        assert (told.status, told.content) == (503, {"ready": False, "reason": "draining"})
        assert (refused.status, refused.code) == (503, "draining")
        assert [each.status for each in asking.answers()] == [200] * 20
        ended = service.wait()
        assert ended.code == 0, ended.errors
        assert service.get("/livez").status == 0


def test_S8_who_would_take_too_long_is_told_so(children: Children, folder: Path) -> None:
    with Service(children, folder, *PATIENT, "--set", "drain_seconds=2", before=[VERY_SLOW]) as service:
        service.until_ready()
        asking = Asking(service, different(3, **LONG))
        service.until_there(3)
        service.kill(signal.SIGTERM)
        assert [(each.status, each.code) for each in asking.answers()] == [(503, "draining")] * 3
        assert service.wait().code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_S8_told_twice_it_ends_at_once(children: Children, folder: Path, number: int) -> None:
    with Service(children, folder, *PATIENT, before=[VERY_SLOW]) as service:
        service.until_ready()
        asking = Asking(service, different(3, **LONG))
        service.until_there(3)
        service.kill(number)
        service.until(lambda: service.get("/readyz").status != 200)
        service.kill(number)
        assert service.wait().code == 128 + number
        assert 200 not in [each.status for each in asking.answers()]


def test_S8_with_nobody_there_it_ends_as_well(children: Children, folder: Path) -> None:
    with Service(children, folder) as service:
        service.until_ready()
        service.kill(signal.SIGINT)
        ended = service.wait()
        assert ended.code == 0
        assert "Traceback" not in ended.errors


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_S9_killed_under_load_it_begins_anew_with_the_same_answers(
    children: Children, folder: Path, kills: int
) -> None:
    expected = None
    for _ in range(kills + 1):
        with Service(children, folder, before=[SLOW]) as service:
            service.until_ready()
            answer = service.generate("the cat sat").content
            assert answer == (expected or answer)
            expected = answer
            asking = Asking(service, different(8, **LONG))
            service.until_there(8)
            service.kill(signal.SIGKILL)
            assert service.wait().code == -signal.SIGKILL
            assert [each.status for each in asking.answers()] == [0] * 8
