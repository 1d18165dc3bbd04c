"""S8, S9: a server that gets SIGTERM finishes running requests; a killed server restarts without repair."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from children import Children, Job
from loaded_server import LoadedServer, wait_until
from small_service import LONG, ConcurrentRequests, Service, distinct_requests
from tiny import tiny_model

from attendo.bench.load_test.load import Load
from attendo.bench.load_test.server import start_server

SLOW: tuple[str, dict[str, float]] = ("slow_steps", {"seconds": 0.01})
VERY_SLOW: tuple[str, dict[str, float]] = ("slow_steps", {"seconds": 0.1})
ENDLESS = {"min_length": 512, "max_length": 512}  # with VERY_SLOW steps nearly 60 s
TRIES = 3  # of a timed test; the best counts, because the machine may be busy


def hold_steps_job(file: Path) -> Job:
    return "hold_steps", {"file": str(file)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model"
    tiny_model().save(path)
    return path


def test_S8_sigterm_finishes_running_requests(children: Children, folder: Path, tmp_path: Path) -> None:
    send_sigterm_under_load(children, folder, tmp_path / "held")


@pytest.mark.slow
def test_S8_sigterm_is_reported_in_100_ms_and_ends_in_10_s(children: Children, folder: Path, tmp_path: Path) -> None:
    measurements = [send_sigterm_under_load(children, folder, tmp_path / "held", SLOW) for _ in range(TRIES)]
    readiness_times, end_times = zip(*measurements, strict=True)
    assert min(readiness_times) <= 0.1
    assert min(end_times) <= 10


def send_sigterm_under_load(children: Children, folder: Path, hold_file: Path, *faults: Job) -> tuple[float, float]:
    """Seconds from the signal to 503 from /readyz, and to the end of the process."""
    with Service(children, folder, before=[hold_steps_job(hold_file), *faults]) as service:
        service.wait_until_ready()
        hold_file.touch()
        requests = ConcurrentRequests(service, distinct_requests(20, **LONG))
        service.wait_for_requests(20)
        begin = time.monotonic()
        service.kill(signal.SIGTERM)
        service.wait_until(lambda: service.get("/readyz").status != 200)
        seconds_to_503 = time.monotonic() - begin
        readiness, rejected = service.get("/readyz"), service.generate()
        assert (readiness.status, readiness.content) == (503, {"ready": False, "reason": "draining"})
        assert (rejected.status, rejected.code) == (503, "draining")
        hold_file.unlink()
        assert [each.status for each in requests.responses()] == [200] * 20
        ended = service.wait()
        assert ended.code == 0, ended.errors
        assert service.get("/livez").status == 0
        return seconds_to_503, time.monotonic() - begin


@pytest.mark.slow
def test_S8_requests_beyond_the_drain_time_get_503(children: Children, folder: Path) -> None:
    with Service(children, folder, "--set", "drain_seconds=1", before=[VERY_SLOW]) as service:
        service.wait_until_ready()
        requests = ConcurrentRequests(service, distinct_requests(3, **ENDLESS))
        service.wait_for_requests(3)
        service.kill(signal.SIGTERM)
        assert [(each.status, each.code) for each in requests.responses()] == [(503, "draining")] * 3
        assert service.wait().code == 0


@pytest.mark.short(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_S8_second_signal_ends_the_process(children: Children, folder: Path, number: int) -> None:
    send_signal_twice(children, folder, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_S8_second_signal_ends_the_process_in_1_s(children: Children, folder: Path, number: int) -> None:
    assert min(send_signal_twice(children, folder, number) for _ in range(TRIES)) <= 1


def send_signal_twice(children: Children, folder: Path, number: int) -> float:
    """Seconds from the second signal to the end of the process."""
    with Service(children, folder, before=[VERY_SLOW]) as service:
        service.wait_until_ready()
        requests = ConcurrentRequests(service, distinct_requests(3, **ENDLESS))
        service.wait_for_requests(3)
        service.kill(number)
        service.wait_until(lambda: service.get("/readyz").status != 200)
        begin = time.monotonic()
        service.kill(number)
        assert service.wait().code == 128 + number
        elapsed = time.monotonic() - begin
        assert 200 not in [each.status for each in requests.responses()]
        return elapsed


@pytest.mark.slow
def test_S8_sigterm_finishes_and_serves_documents(children: Children, folder: Path) -> None:
    """Clients of documents poll every few seconds, each time on a new connection."""
    with Service(children, folder, "--languages", "en-zh", before=[VERY_SLOW]) as service:
        service.wait_until_ready()
        first, second = service.upload("the cat sat\n"), service.upload("a small dog\n" * 3)
        assert (first.status, second.status) == (200, 200)
        begin = time.monotonic()
        service.kill(signal.SIGTERM)
        service.wait_until(lambda: service.get("/readyz").status != 200)
        # Without documents, the server would stop listening within this second.
        time.sleep(max(0.0, begin + 1.0 - time.monotonic()))
        assert service.upload("the cat sat\n").code == "draining"
        assert service.generate().code == "draining"
        for uploaded in (first, second):
            service.wait_until(lambda uploaded=uploaded: service.document_request(uploaded).content["status"] == "done")
            assert service.document_request(uploaded, "/result").status == 200
        ended = service.wait()
        assert (ended.code, "Traceback" in ended.errors) == (0, False)


@pytest.mark.slow
def test_S8_unfetched_documents_do_not_delay_shutdown(children: Children, folder: Path) -> None:
    options = ("--languages", "en-zh", "--set", "drain_seconds=1")
    with Service(children, folder, *options, before=[VERY_SLOW]) as service:
        service.wait_until_ready()
        assert service.upload("the cat sat\n" * 500).status == 200
        service.kill(signal.SIGTERM)
        ended = service.wait()
        assert (ended.code, "Traceback" in ended.errors) == (0, False)


def test_S8_idle_server_ends(children: Children, folder: Path) -> None:
    with Service(children, folder) as service:
        service.wait_until_ready()
        service.kill(signal.SIGINT)
        ended = service.wait()
        assert ended.code == 0
        assert "Traceback" not in ended.errors


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_S9_killed_server_restarts_with_the_same_outputs(
    children: Children, folder: Path, tmp_path: Path, kills: int
) -> None:
    expected, files = None, read_files(folder)
    documents, hold_file = ("--set", f"documents_folder={tmp_path}"), tmp_path.with_name(f"{tmp_path.name}-held")
    for _ in range(kills + 1):
        with Service(children, folder, *documents, before=[hold_steps_job(hold_file)]) as service:
            service.wait_until_ready()
            answer = service.generate("the cat sat").content
            assert answer == (expected or answer)
            expected = answer
            hold_file.touch()
            requests = ConcurrentRequests(service, distinct_requests(8, **LONG))
            service.wait_for_requests(8)
            service.kill(signal.SIGKILL)
            assert service.wait().code == -signal.SIGKILL
            assert [each.status for each in requests.responses()] == [0] * 8
            assert read_files(folder) == files
            assert read_files(tmp_path) == {}
            hold_file.unlink()


@pytest.mark.slow
def test_S9_restarted_server_is_ready_in_10_s(folder: Path) -> None:
    assert min(seconds_to_restart(folder) for _ in range(TRIES)) <= 10


def seconds_to_restart(folder: Path) -> float:
    """Seconds until a new process on the port of a killed one is ready, including all imports.

    It is started as a supervisor would: `start_server` yields when all models have been warmed up.
    """
    with start_server([folder], "--threads", "1") as first:
        port, loaded_server = first.url.rpartition(":")[2], LoadedServer(first)
        load = threading.Thread(target=loaded_server.send_load, args=(Load(clients=8, seconds=1),), kwargs=LONG)
        load.start()
        wait_until(lambda: loaded_server.metric("attendo_running_requests") > 0)
        os.kill(first.pid, signal.SIGKILL)
        begin = time.monotonic()
        with start_server([folder], "--threads", "1", "--port", port) as second:
            again = LoadedServer(second)
            assert '"ready":true' in again.get("/readyz")
            elapsed = time.monotonic() - begin
            load.join()
            assert {each.status for each in again.send_load(Load(clients=8, seconds=0.2))} == {200}
    return elapsed


def read_files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
