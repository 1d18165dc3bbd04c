"""Runs each command of a guide in a process of its own that costs no import of torch: it forks from one that has it.

It has trained once itself, so that whatever torch imports late is there already, and has no threads: forking is safe.
"""

import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

# Asks the server at the address in its first argument, with the rest, this folder, these variables and these streams.
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    question = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [question], [0, 1, 2])
    sys.exit(int(server.recv(16) or 70))
"""
LONGEST_QUESTION = 1 << 20


def main(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()  # whoever asks before the training is over waits
        _train_once()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            client, _ = server.accept()
            with client:
                if os.fork() == 0:
                    _answer(client)


def _answer(client: socket.socket) -> None:
    """Wait for the command to end, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    question, streams, _, _ = socket.recv_fds(client, LONGEST_QUESTION, 3)
    command = os.fork()
    if command == 0:
        _run(question, streams)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    client.sendall(str(code).encode())
    os._exit(0)


def _run(question: bytes, streams: list[int]) -> None:
    code = 70
    try:
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(streams[number], number)
            os.close(streams[number])
            # Anew: the old ones remember what could be done with the streams of the server.
            # By lines, as at a terminal, where results and messages stand in the order in which they were said.
            mode, buffering = ("w", 1) if number else ("r", -1)
            setattr(sys, name, os.fdopen(number, mode, buffering, "utf-8", closefd=False))
        arguments, folder, environment = json.loads(question)
        os.chdir(folder)
        os.environ.update(environment)
        _attendo(arguments)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 70
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
