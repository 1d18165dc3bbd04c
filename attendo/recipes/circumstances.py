"""What a run's checkpoints belong to: its settings, its data, and the machine it was begun on."""

import hashlib
import platform
from datetime import UTC, datetime
from typing import Any

import torch

from attendo import __version__
from attendo.recipes.run_config import RunConfig, to_toml
from attendo.train.world import World

MACHINE = ("torch", "threads", "world_size", "device")


def facts(config: RunConfig, data_sha256: str, device: torch.device, world: World) -> dict[str, Any]:
    """For the manifest of every checkpoint."""
    return {
        "config_sha256": hashlib.sha256(to_toml(config).encode()).hexdigest(),
        "data_sha256": data_sha256,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "world_size": world.size,
        "device": device.type,
    }


def other_machine(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where another machine may round differently, one line each."""
    return [
        f"{name} was {before[name]} and is {now[name]}: the last bits may differ"
        for name in MACHINE
        if before[name] != now[name]
    ]


def circumstances(config: RunConfig, device: torch.device, world: World) -> dict[str, Any]:
    """What is not in the settings and may still matter to whoever looks at the run later."""
    return {
        "attendo": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "processes": world.size,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "seed": config.seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
