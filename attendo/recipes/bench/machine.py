"""What a speed was measured on."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

from attendo import __version__
from attendo.recipes.bench.rivals import PACKAGES, version


def facts(device: torch.device) -> dict[str, Any]:
    """Hardware, versions and threads. A rival that is not installed has no version."""
    return {
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "attendo": __version__,
        "torch": torch.__version__,
        **{name: version(name) for name in PACKAGES.values()},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
