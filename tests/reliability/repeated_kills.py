"""Kills a command again and again, and calls it again, until it has written its output."""

import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from children import Children

MAX_SECONDS = 4.0  # until a kill, also on a busy machine


def kill_and_continue(
    children: Children,
    command: Sequence[object],
    folder: Path,
    kills: int,
    disk_calls: int,
    workers: int,
    check: Callable[[Path, Path], None],
) -> None:
    """Run a command whose last argument is its output folder until it was killed `kills` times, then to its end.

    Every second kill is inside a call to the disk, one of about `disk_calls`. `check` compares a complete output with
    that of an undisturbed call.
    """
    whole, out, dice = folder / "whole", folder / "out", random.Random(workers)
    started = time.monotonic()
    assert children.attendo(*command, whole).code == 0
    seconds = min(time.monotonic() - started, MAX_SECONDS * workers)
    while kills:
        how = {"call": dice.randrange(1, disk_calls), "how": dice.choice(["before", "half", "after"])}
        in_write = kills % 2 == 0
        child = children.start_attendo(*command, out, before=[("die_at_disk_call", how)] if in_write else [])
        if not in_write:
            time.sleep(dice.uniform(0, seconds))
            child.kill()
        ended = child.wait()
        assert ended.code in (0, -9), ended.errors
        kills -= ended.code == -9
        if ended.code == 0:
            check(out, whole)
            shutil.rmtree(out)
    ended = children.attendo(*command, out)
    assert ended.code == 0, ended.errors
    check(out, whole)
