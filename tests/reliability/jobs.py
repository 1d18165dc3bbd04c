"""What a forked process does: a command, or first something that goes wrong in it later.

A process that is to die does so by SIGKILL to itself: nothing is cleaned up, as after a loss of power.
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
from small_run import CPU, begin, built
from snapshots import snapshot

import attendo.cli.main
import attendo.train.checkpoint
import attendo.train.update
from attendo import atomic_files, model_folder
from attendo.cli.progress import TrainingProgress
from attendo.runs.config import RunConfig, load_run_config, read_run_file
from attendo.runs.run import Run
from attendo.train import checkpoint
from attendo.train.checkpoint import Checkpoints
from attendo.train.distributed import init_distributed
from attendo.train.loop import Report, Step

__all__ = ["hold_steps", "serving_fault", "slow_steps"]  # found here by their names, as all jobs are

MAY_NOT = 77
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

DISK_CALLS = [
    *((atomic_files, name) for name in ("write", "sync", "move", "remove")),
    *((module, name) for module in (checkpoint, model_folder) for name in ("save_file", "write_manifest")),
]


def attendo_command(arguments: list[str]) -> None:
    sys.argv = ["attendo", *arguments]
    attendo.cli.main.main()


def die_at_disk_call(call: int, how: str) -> None:
    """`before` the call, `after` it, or when it has done `half` of its work, where that can be."""
    made = 0

    def dying(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            nonlocal made
            made += 1
            if made != call:
                return original(*arguments)
            if how == "after":
                original(*arguments)
            elif how == "half":
                _do_half(name, original, arguments)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("dead by now")

        return wrapped

    for module, name in DISK_CALLS:
        setattr(module, name, dying(name, getattr(module, name)))


def signal_at_batch(batch: int, numbers: list[int]) -> None:
    """Signals that arrive while this batch is learned from, its loss just computed."""
    loss, seen = attendo.train.update.training_loss, 0

    def signalling(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == batch:
            for number in numbers:
                os.kill(os.getpid(), number)
        return loss(*arguments)

    attendo.train.update.training_loss = signalling


def spoil_loss(batch: int) -> None:
    """The loss of this batch is no number."""
    loss, seen = attendo.train.update.training_loss, 0

    def spoiling(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        return loss(*arguments) * (float("nan") if seen == batch else 1.0)

    attendo.train.update.training_loss = spoiling


def forget_random_state() -> None:
    """A run that is resumed draws anew."""
    attendo.train.checkpoint.restore_random = lambda *arguments: True


def record_pairs(file: str) -> None:
    """The numbers of the pairs that this rank learns from, one line a batch."""
    learn = attendo.train.update.Updater._forward_backward

    def recording(self: Any, batch: Any) -> None:
        with Path(file).open("a") as lines:
            lines.write(json.dumps(batch.numbers) + "\n")
        learn(self, batch)

    attendo.train.update.Updater._forward_backward = recording  # type: ignore[method-assign]


def limit_file_size(limit: int) -> None:
    """A longer file cannot be written: the error of the system is that of a disk without room."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def mount_small_disk(folder: str, size: int) -> None:
    """A disk of so many bytes that only this process sees and that is gone with it; exit code 77 where it may not."""
    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    alone = CLONE_NEWNS if user == 0 else CLONE_NEWNS | CLONE_NEWUSER
    private = MS_REC | MS_PRIVATE
    if system.unshare(alone) != 0:
        sys.exit(MAY_NOT)
    if user != 0:  # who is nobody in the new space could write nothing there
        for file, content in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", file).write_text(content)
    made = (
        system.mount(None, b"/", None, private, None) == 0
        and system.mount(b"small", folder.encode(), b"tmpfs", 0, f"size={size}".encode()) == 0
    )
    if not made:
        sys.exit(MAY_NOT)


def fill_disk(folder: str, first: int, last: int) -> None:
    """A file takes all the room that is left when this step is told, and is gone when the other one is."""
    filler, show = Path(folder) / "filler", TrainingProgress.show

    def showing(self: TrainingProgress, report: Report) -> None:
        if isinstance(report, Step) and report.step == first:
            _fill(filler)
        if isinstance(report, Step) and report.step == last:
            filler.unlink()
        show(self, report)

    TrainingProgress.show = showing  # type: ignore[method-assign]


def copy_folder(source: str, target: str) -> None:
    shutil.copytree(source, target)


def attendo_to_the_end(arguments: list[str]) -> None:
    """A command that must succeed, with more to do behind it."""
    with suppress(SystemExit):
        attendo_command(arguments)


def measure_memory(run_file: str, folder: str, result: str) -> None:
    """Bytes, open files and threads of this process after every step, validation and save of a run."""
    run = begin(RunConfig(**read_run_file(Path(run_file))), Path(folder))
    measured = []
    for report in run.train():
        if isinstance(report, Step):
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            counts = [sum(1 for _ in Path(f"/proc/self/{kind}").iterdir()) for kind in ("fd", "task")]
            measured.append([resident, *counts])
    Path(result).write_text(json.dumps(measured))


def save_again(run: str, target: str) -> None:
    """What a run was resumed from, sharded where there are others, and how many numbers this process holds of it."""
    with init_distributed(CPU) as (world, device):
        config = load_run_config(Path(run), ["train.sharding=full"])
        resumed = built(Run.resume(Path(run), device, world, config))
        learner, snapshot = resumed.trainer.updater, resumed.trainer.snapshot()
        if world.is_main:
            Checkpoints(Path(target)).save(snapshot)
        learning = [_numbers(each) for each in learner.placement.network.parameters()]
        moments = [_numbers(state["exp_avg"]) for state in learner.optimizer.state.values()]
        whole = [each.untyped_storage().nbytes() for each in learner.network.parameters()]
        print(json.dumps({"weights": sum(learning), "moments": sum(moments), "whole": sum(whole) // 4}))


def hear_the_leader() -> None:
    """Every process says another number and decides otherwise; what it hears is printed."""
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


def save_and_prune(folder: str, step: int, keep_last: int, best: int) -> None:
    checkpoints = Checkpoints(Path(folder))
    checkpoints.save(snapshot(step))
    checkpoints.prune(keep_last, best)


def write_folder(kind: str, folder: str, version: int) -> None:
    WRITERS[kind](Path(folder), version)


def _do_half(name: str, original: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name == "write":
        path, content = arguments
        original(path, content[: len(content) // 2])
    elif name == "save_file":
        original(*arguments)
        _cut(arguments[1])
    elif name == "write_manifest":
        original(*arguments)
        _cut(arguments[0] / "manifest.json")
    elif name == "remove" and arguments[0].is_dir():
        next(arguments[0].iterdir()).unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
