"""R3 on Ray: `attendo generate --ray` writes the bytes of one process, also if a worker of Ray is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from tiny import PATIENCE, SOURCES, tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test reads /proc"),
]
WINDOWS = 12


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder, dice = tmp_path / "corpus", random.Random(1)
    folder.mkdir()
    for name, lines in (("large.txt", 2048 * WINDOWS), ("small.txt", 10)):
        text = "".join(f"{dice.choice([*SOURCES, '', ' '])} {dice.randrange(9)}\n" for _ in range(lines))
        (folder / name).write_text(text)
    return folder


def list_descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the processes that a process started, with their names. Ray's workers name themselves after their task."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parents.setdefault(parent, []).append((int(folder.name), name))
    waiting = [pid]
    while waiting:
        for each in parents.get(waiting.pop(), []):
            waiting.append(each[0])
            yield each


def find_actor(pid: int) -> int | None:
    return next(
        (each for each, name in list_descendants(pid) if name.startswith("ray::") and "WindowActor" in name), None
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_R3_a_killed_ray_worker_loses_and_doubles_no_line(tmp_path: Path, corpus: Path) -> None:
    tiny_model(num_encoder_layers=1, num_decoder_layers=1).save(tmp_path / "model")
    command = [sys.executable, "-m", "attendo", "generate", str(tmp_path / "model"), "--input", str(corpus)]
    command += ["--max-length", "3", "--output"]
    subprocess.run([*command, str(tmp_path / "one")], check=True, capture_output=True)
    out, errors = tmp_path / "ray", tmp_path / "errors"
    with errors.open("wb") as file:
        running = subprocess.Popen([*command, str(out), "--ray", "--workers", "1"], stderr=file, cwd=tmp_path)
    killed, deadline = [], time.monotonic() + 10 * PATIENCE
    while running.poll() is None and time.monotonic() < deadline and len(killed) < 2:
        parts = list((out / ".parts/large.txt").glob("[0-9]*.jsonl"))
        actor = find_actor(running.pid) if len(parts) > 2 * len(killed) else None
        if actor is not None and actor not in killed:
            with suppress(ProcessLookupError):
                os.kill(actor, signal.SIGKILL)
                killed.append(actor)
        time.sleep(0.02)
    assert running.wait(10 * PATIENCE) == 0, errors.read_text("utf-8")
    assert len(killed) == 2, "the command ended before its worker was killed twice"
    assert contents(out) == contents(tmp_path / "one")
