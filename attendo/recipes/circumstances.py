"""What a run's checkpoints belong to: its settings, its data, and the machine it was begun on."""

import platform
from datetime import UTC, datetime
from typing import Any

import torch

from attendo import __version__
from attendo.data.index import digest
from attendo.recipes.run_config import RunConfig, resolved
from attendo.train.world import World

MACHINE = ("torch", "threads", "world_size", "device")


def facts(config: RunConfig, data_sha256: str, device: torch.device, world: World) -> dict[str, Any]:
    """For the manifest of every checkpoint."""
    return {
        "config_sha256": digest(what_is_learned(config)),
        "data_sha256": data_sha256,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "world_size": world.size,
        "device": device.type,
    }


def what_is_learned(config: RunConfig) -> dict[str, Any]:
    """Settings that are not as they would be if they were left out, so that a setting more changes nothing.

    Who holds the weights is not among them: any may go on from what any other saved.
    """
    return resolved(config.replace(train=config.train.replace(sharding="none")), whole=False)


def other_machine(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where another machine may round differently, one line each."""
    return [
        f"{name} was {before[name]} and is {now[name]}: the last bits may differ"
        for name in MACHINE
        if before[name] != now[name]
    ]


def circumstances(config: RunConfig, device: torch.device, world: World, threads: int | None) -> dict[str, Any]:
    """What is not in the settings and may still matter later. `threads` is None where it is not chosen yet."""
    return {
        "attendo": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": threads,
        "processes": world.size,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "seed": config.seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
