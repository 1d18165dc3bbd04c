"""torchrun's elastic agent: a machine dies, and the run goes on from its last checkpoint with fewer processes."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from children import Children
from distributed_runs import config, train_with_ranks
from small_run import STEPS, outcome, reports, write_run_file
from tiny import PATIENCE

from attendo.train.checkpoint import Checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Each agent simulates a machine: it has one process, and both are killed together.
AGENT = (
    *("torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3"),
    *("--rdzv-backend", "c10d", "--rdzv-conf", "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=5"),
)
# A process whose steps take some time, so that the kill comes before the end.
SLOW_STEPS = """
import sys, time
from pathlib import Path
import attendo.train.update as update
original, seconds = update.Updater.update, Path(sys.argv[1])
def slow(self, batches):
    time.sleep(float(seconds.read_text()))
    return original(self, batches)
update.Updater.update = slow
sys.argv = ["attendo", *sys.argv[2:]]
from attendo.cli.main import main
main()
"""


@contextmanager
def start_agent(number: int, port: int, folder: Path, arguments: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    (folder / "steps.py").write_text(SLOW_STEPS)
    command = [sys.executable, "-m", *AGENT, "--rdzv-id", "test", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    command += ["--rdzv-conf", f"is_host={number == 0},{AGENT[-1]}", "--local-addr", "127.0.0.1"]
    command += [str(folder / "steps.py"), str(folder / "seconds"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1"}
    with (folder / f"agent-{number}.log").open("wb") as log:
        agent = subprocess.Popen(command, stderr=log, stdout=log, env=environment, cwd=folder, start_new_session=True)
    try:
        yield agent
    finally:
        kill_session(agent)


def kill_session(agent: "subprocess.Popen[bytes]") -> None:
    """Kill an agent and its processes, as a power failure does. torchrun gives each process a session of its own."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
    found = [int(word) for word in children.read_text().split()] if children.exists() else []
    for pid in (agent.pid, *found):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    agent.wait()


def wait_for_step(run: Path, step: int) -> None:
    deadline = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < deadline:
        if Checkpoints(run / "checkpoints").steps()[-1:] >= [step]:
            return
        time.sleep(0.1)
    raise AssertionError(f"no checkpoint of step {step}")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the test reads /proc")
def test_R3_a_run_goes_on_without_a_lost_machine(children: Children, prepared: Path, tmp_path: Path) -> None:
    run_file = write_run_file(tmp_path / "run.toml", config(prepared, save_every=4, keep_last=99))
    run = tmp_path / "run"
    (tmp_path / "seconds").write_text("0.5")  # a step, until the kill
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["train", str(run_file), "--out", str(run), "--continue", "--device", "cpu"]
    with start_agent(0, port, tmp_path, arguments) as first, start_agent(1, port, tmp_path, arguments) as second:
        wait_for_step(run, 8)
        kill_session(second)
        (tmp_path / "seconds").write_text("0")
        code = first.wait(4 * PATIENCE)
    log = (tmp_path / "agent-0.log").read_text("utf-8", "replace")
    assert code == 0, log
    assert "warning: world_size was 2 and is 1" in log
    (resumed_at,) = {int(step) for step in re.findall(r"going on from step (\d+)", log)}
    assert 8 <= resumed_at < STEPS
    assert json.loads((run / "checkpoints" / f"step-{STEPS:08d}/manifest.json").read_text())["facts"]["world_size"] == 1

    by_hand = tmp_path / "by-hand"
    file = write_run_file(by_hand / "run.toml", config(prepared, save_every=4, keep_last=99))
    train_with_ranks(children, 2, by_hand, [str(file), "--out", str(by_hand / "run"), "--stop-at", str(resumed_at)])
    train_with_ranks(children, 1, by_hand, ["--resume", str(by_hand / "run")])
    assert outcome(run) == outcome(by_hand / "run")
    assert [line["step"] for line in reports(run) if line["kind"] == "step"] == list(range(1, STEPS + 1))
    shutil.rmtree(by_hand)
