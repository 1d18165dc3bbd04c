"""`attendo explore`: serves the page until it is interrupted, and rejects bad arguments."""

import asyncio
import os
import queue
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import PATIENCE, Command

from attendo.serve import server as running


@pytest.mark.slow
def test_serves_the_page_until_interrupted(model_folder: Path) -> None:
    command = [sys.executable, "-m", "attendo", "explore", str(model_folder), "--port", "0", "--no-open"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}api/v1/models", timeout=PATIENCE) as response:
            assert b'"models"' in response.read()
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, output, errors) == (0, "", "")


def test_a_port_in_use_is_a_usage_error(attendo: Command, model_folder: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        failed = attendo("explore", model_folder, "--port", str(port))
    assert failed.code == 2
    assert failed.error == message("port_in_use", port=port, host="127.0.0.1")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--port", "70000"], 2, "65535"),
        (["--host", "0.0.0.0", "--port", "0"], 2, "every address"),
        (["--host", "192.0.2.1", "--port", "0"], 2, fragment("host_not_local")),
        (["--device", "tpu", "--port", "0"], 2, fragment("unknown_device", name="tpu")),
    ],
)
def test_bad_arguments_raise_usage_error(
    attendo: Command, model_folder: Path, arguments: list[str], code: int, text: str
) -> None:
    failed = attendo("explore", model_folder, *arguments)
    assert failed.code == code
    assert text in failed.error


def test_a_folder_without_a_model_is_an_error(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("explore", tmp_path / "nothing", "--port", "0")
    assert failed.code == 4
    assert "is not a folder" in failed.error


@pytest.mark.slow
def test_the_browser_opens_once_the_server_is_ready(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(running.webbrowser, "open", opened.put)
    # The logging setup would outlive this test.
    monkeypatch.setattr(running.uvicorn.Config, "configure_logging", lambda _: None)

    def run_until_interrupted(server: running._Server, sockets: list[socket.socket]) -> None:
        async def main() -> None:
            server.config.load()
            server.lifespan = server.config.lifespan_class(server.config)
            assert opened.empty()
            await server.startup(sockets)
            server.handle_exit(signal.SIGINT, None)
            await server.main_loop()
            await server.shutdown(sockets)

        asyncio.run(main())

    monkeypatch.setattr(running._Server, "run", run_until_interrupted)
    outcome = attendo("explore", model_folder, "--port", "0")
    assert outcome.code == 0
    assert opened.get(timeout=PATIENCE) == outcome.output.strip()
    assert attendo("explore", model_folder, "--port", "0", "--no-open").code == 0
    assert opened.empty()


def test_missing_packages_name_the_install_command(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "attendo.serve.server")
    failed = attendo("explore", model_folder)
    assert failed.code == 2
    assert "pip install 'attendo[serve]'" in failed.error
