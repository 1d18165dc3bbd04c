"""Runs each command of a guide in a process forked from this one, which has already imported torch.

The server trains once at the start, so that torch's late imports are done. It has no threads, so forking is safe.
"""

import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

# Sends its other arguments, folder, environment and streams to the server whose address is its first argument.
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    sys.exit(int(server.recv(16) or 70))
"""
MAX_REQUEST_BYTES = 1 << 20


def main(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()  # requests wait until the training is finished
        _train_once()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            client, _ = server.accept()
            with client:
                if os.fork() == 0:
                    _handle(client)


def _handle(client: socket.socket) -> None:
    """Wait for the command to end and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(client, MAX_REQUEST_BYTES, 3)
    command = os.fork()
    if command == 0:
        _run(request, streams)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    client.sendall(str(code).encode())
    os._exit(0)


def _run(request: bytes, streams: list[int]) -> None:
    code = 70
    try:
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(streams[number], number)
            os.close(streams[number])
            # New objects, because the old ones have cached properties of the server's streams.
            # Line-buffered as at a terminal, so results and messages keep their order.
            mode, buffering = ("w", 1) if number else ("r", -1)
            setattr(sys, name, os.fdopen(number, mode, buffering, "utf-8", closefd=False))
        arguments, folder, environment = json.loads(request)
        os.chdir(folder)
        os.environ.update(environment)
        _attendo(arguments)
    except SystemExit as exiting:
        code = exiting.code if isinstance(exiting.code, int) else 70
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _attendo(arguments: list[str]) -> None:
    from attendo.cli.main import main as attendo

    sys.argv = ["attendo", *arguments]
    attendo()


def _train_once() -> None:
    from tiny import QUICK_RUN, settings, write_pairs

    with tempfile.TemporaryDirectory() as folder:
        source, target = map(str, write_pairs(Path(folder)))
        with suppress(SystemExit):
            _attendo(["train", "--source", source, "--target", target, "--out", f"{folder}/run", *settings(*QUICK_RUN)])


if __name__ == "__main__":
    main(sys.argv[1])
