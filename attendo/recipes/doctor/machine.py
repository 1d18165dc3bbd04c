"""What this machine has free, and what an update really takes on it."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import attendo
from attendo.model.transformer import Transformer
from attendo.recipes.doctor.shape import Shape
from attendo.train.learner import Learner

_CGROUP = Path("/sys/fs/cgroup")
_MOST_SECONDS = 600


def free_memory(device: torch.device) -> int | None:
    """Bytes that this process may use beside what others have; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    free = [each for each in (_available(), _allowed()) if each is not None]
    return min(free) if free else None


def measured(learner: Learner, shape: Shape) -> int | None:
    """Bytes that an update of such a batch takes at most; None where that cannot be told."""
    return _measured_on_gpu(learner, shape) if learner.device.type == "cuda" else _measured_apart(learner, shape)


def _measured_on_gpu(learner: Learner, shape: Shape) -> int | None:
    device = learner.device
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        network = Transformer(learner.network.config, torch.Generator().manual_seed(0)).to(device)
        student = Learner(network, learner.config.replace(compile="off", capture="off"))
        student.update([Shape(1, shape.source, shape.target).batch()])  # from the first update on there are moments
        student.update([shape.batch()])
        return torch.cuda.max_memory_allocated(device) - before
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def _measured_apart(learner: Learner, shape: Shape) -> int | None:
    """In a process of its own, because this one's peak is past."""
    asked = {
        "model": learner.network.config.model_dump(mode="json", exclude_unset=True),
        "train": learner.config.replace(compile="off").model_dump(mode="json", exclude_unset=True),
        "shape": asdict(shape),
        "threads": torch.get_num_threads(),
    }
    package = str(Path(attendo.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    try:
        with TemporaryDirectory() as folder:
            subprocess.run(
                [sys.executable, "-P", "-m", "attendo.recipes.doctor.one_update", f"{folder}/answer"],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                timeout=_MOST_SECONDS,
                check=True,
                env={**os.environ, "PYTHONPATH": paths},
            )
            return int(json.loads(Path(folder, "answer").read_text())["bytes"])
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _available() -> int | None:
    """As Linux tells it."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
        return None
    except OSError:
        return None


def _allowed() -> int | None:
    """What is left of the limit of a container."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
