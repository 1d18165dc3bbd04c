"""Jobs of a forked process: a command, or a fault that is installed before it.

A process dies by sending SIGKILL to itself. Nothing is cleaned up, as after a power failure.
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from replaced_folders import WRITERS
from serving_faults import hold_steps, serving_fault, slow_steps
from small_run import CPU, begin, build_run
from snapshots import snapshot

import attendo.cli.main
import attendo.train.checkpoint
import attendo.train.update
from attendo import atomic_files, model_folder
from attendo.cli.progress import TrainingProgress
from attendo.runs.config import RunConfig, load_run_config, read_run_file
from attendo.runs.run import Run
from attendo.train import checkpoint
from attendo.train.checkpoint import Checkpoints, Snapshot
from attendo.train.checkpoint_writer import CheckpointWriter
from attendo.train.distributed import init_distributed
from attendo.train.loop import Report, Step

__all__ = ["hold_steps", "serving_fault", "slow_steps"]  # jobs are looked up in this module by name

NOT_PERMITTED = 77
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

DISK_CALLS = [
    *((atomic_files, name) for name in ("write", "append", "sync", "move", "remove")),
    *((module, name) for module in (checkpoint, model_folder) for name in ("save_file", "write_manifest")),
]


def attendo_command(arguments: list[str]) -> None:
    sys.argv = ["attendo", *arguments]
    attendo.cli.main.main()


def die_at_disk_call(call: int, how: str) -> None:
    """Die `before` the call, `after` it, or when it has done `half` of its work, if that is possible."""
    calls = 0

    def dying_call(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls != call:
                return original(*arguments)
            if how == "after":
                original(*arguments)
            elif how == "half":
                _do_half_of_call(name, original, arguments)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("dead by now")

        return wrapped

    for module, name in DISK_CALLS:
        setattr(module, name, dying_call(name, getattr(module, name)))


def signal_at_batch(batch: int, numbers: list[int]) -> None:
    """Send signals to the process after the loss of this batch is computed."""
    loss, batches_seen = attendo.train.update.training_loss, 0

    def loss_with_signals(*arguments: Any) -> Any:
        nonlocal batches_seen
        batches_seen += 1
        if batches_seen == batch:
            for number in numbers:
                os.kill(os.getpid(), number)
        return loss(*arguments)

    attendo.train.update.training_loss = loss_with_signals


def make_loss_nan(batch: int) -> None:
    """Make the loss of this batch NaN."""
    loss, batches_seen = attendo.train.update.training_loss, 0

    def loss_with_nan(*arguments: Any) -> Any:
        nonlocal batches_seen
        batches_seen += 1
        return loss(*arguments) * (float("nan") if batches_seen == batch else 1.0)

    attendo.train.update.training_loss = loss_with_nan


def forget_random_state() -> None:
    """Do not restore the random state when a run is resumed."""
    attendo.train.checkpoint.restore_random_state = lambda *arguments: True


def record_pairs(file: str) -> None:
    """Write the numbers of the pairs that this rank trains on, one line per batch."""
    forward_backward = attendo.train.update.Updater._forward_backward

    def record(self: Any, batch: Any) -> None:
        with Path(file).open("a") as lines:
            lines.write(json.dumps(batch.numbers) + "\n")
        forward_backward(self, batch)

    attendo.train.update.Updater._forward_backward = record  # type: ignore[method-assign]


def limit_file_size(limit: int) -> None:
    """Limit the size of files. A longer write fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def mount_small_disk(folder: str, size: int) -> None:
    """Mount a tmpfs of `size` bytes that only this process sees. Exit with code 77 if that is not permitted."""
    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    alone = CLONE_NEWNS if user == 0 else CLONE_NEWNS | CLONE_NEWUSER
    private = MS_REC | MS_PRIVATE
    if system.unshare(alone) != 0:
        sys.exit(NOT_PERMITTED)
    if user != 0:  # an unmapped user cannot write in the new namespace
        for file, content in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", file).write_text(content)
    mounted = (
        system.mount(None, b"/", None, private, None) == 0
        and system.mount(b"small", folder.encode(), b"tmpfs", 0, f"size={size}".encode()) == 0
    )
    if not mounted:
        sys.exit(NOT_PERMITTED)


def fill_disk(folder: str, first: int, last: int) -> None:
    """A file fills the disk when step `first` is reported and is removed when step `last` is."""
    filler, show = Path(folder) / "filler", TrainingProgress.show

    def show_and_fill(self: TrainingProgress, report: Report) -> None:
        if isinstance(report, Step) and report.step == first:
            _fill(filler)
        if isinstance(report, Step) and report.step == last:
            filler.unlink()
        show(self, report)

    TrainingProgress.show = show_and_fill  # type: ignore[method-assign]


def copy_folder(source: str, target: str) -> None:
    shutil.copytree(source, target)


def attendo_to_the_end(arguments: list[str]) -> None:
    """A command that is followed by other jobs."""
    with suppress(SystemExit):
        attendo_command(arguments)


def measure_memory(run_file: str, folder: str, result: str) -> None:
    """Measure resident bytes, open files and threads of this process after every step of a run."""
    run = begin(RunConfig(**read_run_file(Path(run_file))), Path(folder))
    measured = []
    for report in run.train():
        if isinstance(report, Step):
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            counts = [sum(1 for _ in Path(f"/proc/self/{kind}").iterdir()) for kind in ("fd", "task")]
            measured.append([resident, *counts])
    Path(result).write_text(json.dumps(measured))


def save_again(run: str, target: str) -> None:
    """Save a resumed run again, sharded if there are several processes, and print how many numbers this one holds."""
    with init_distributed(CPU) as (world, device):
        config = load_run_config(Path(run), ["train.sharding=full"])
        resumed = build_run(Run.resume(Path(run), device, world, config))
        updater, snapshot = resumed.trainer.updater, resumed.trainer.snapshot()
        if world.is_main:
            Checkpoints(Path(target)).save(snapshot)
        weights = [_numbers(each) for each in updater.placement.network.parameters()]
        moments = [_numbers(state["exp_avg"]) for state in updater.optimizer.state.values()]
        unsharded = [each.untyped_storage().nbytes() for each in updater.network.parameters()]
        print(json.dumps({"weights": sum(weights), "moments": sum(moments), "whole": sum(unsharded) // 4}))


def print_broadcasts() -> None:
    """Every process sends another number and another decision, and prints what it receives."""
    with init_distributed(CPU) as (world, _):
        print(
            json.dumps(
                [world.broadcast(world.rank + 0.1), world.broadcast_bool(world.is_main), world.any(world.is_main)]
            )
        )


def _numbers(tensor: Any) -> int:
    return int((tensor.to_local() if hasattr(tensor, "to_local") else tensor).numel())


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))


def save_and_prune(folder: str, step: int, keep_last: int, best: int, in_thread: bool = False) -> None:
    checkpoints = Checkpoints(Path(folder))

    def write(saved: Snapshot) -> Path:
        path = checkpoints.save(saved)
        checkpoints.prune(keep_last, best)
        return path

    if in_thread:
        writer = CheckpointWriter()
        writer.start(snapshot(step), write)
        writer.fetch()
    else:
        write(snapshot(step))


def write_folder(kind: str, folder: str, version: int) -> None:
    WRITERS[kind](Path(folder), version)


def _do_half_of_call(name: str, original: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name in ("write", "append"):
        path, content = arguments
        original(path, content[: len(content) // 2])
    elif name == "save_file":
        original(*arguments)
        _truncate(arguments[1])
    elif name == "write_manifest":
        original(*arguments)
        _truncate(arguments[0] / "manifest.json")
    elif name == "remove" and arguments[0].is_dir():
        original(next(arguments[0].iterdir()))


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
