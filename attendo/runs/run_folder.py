"""The run folder: creation, environment record and facts stored with checkpoints."""

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from attendo import __version__, atomic_files
from attendo.decode.options import RENAMED_SETTINGS, RENAMED_VALUES
from attendo.errors import UsageError
from attendo.explore.curves import METRICS_FILE
from attendo.model_files import json_sha256
from attendo.runs.config import RunConfig, resolve_config
from attendo.settings import rename_settings
from attendo.train.config import PLACEMENT_SETTINGS
from attendo.train.distributed import Distributed

_RESULT_FOLDERS = ("data", "checkpoints", "weights", "model")
SKIPPED_FILE = "skipped.jsonl"
_RUN_FILES = ("run.toml", *_RESULT_FOLDERS, "validation", METRICS_FILE, SKIPPED_FILE)
_OLD_NAMES = {new: old for old, new in RENAMED_SETTINGS.items()}
_OLD_VALUES = {name: {new: old for old, new in values.items()} for name, values in RENAMED_VALUES.items()}
MACHINE_FACTS = ("torch", "threads", "world_size", "device")


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Raise `UsageError` if the folder contains a run with data, unless `overwrite`.

    A path that cannot be a folder is rejected too, before any text is read.
    """
    if not overwrite and is_run_begun(folder):
        raise UsageError("run_folder_in_use", folder=folder)
    existing = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    if existing.exists() and not existing.is_dir():
        raise UsageError("run_folder_path_is_file", folder=folder, file=existing)


def is_run_begun(folder: Path) -> bool:
    """Return whether the folder contains a run with data. A run without data may be begun again."""
    return (folder / "run.toml").is_file() and any((folder / name).exists() for name in _RESULT_FOLDERS)


def make_folder(folder: Path) -> None:
    try:
        with atomic_files.explain_disk_full(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError("run_folder_not_creatable", folder=folder, reason=error.strerror) from None


def init_run_folder(folder: Path, settings: bytes, environment: bytes) -> None:
    """Initialise the folder. Files of an earlier run are removed."""
    try:
        with atomic_files.explain_disk_full(folder, len(settings) + len(environment)):
            for name in _RUN_FILES:
                atomic_files.remove(folder / name)
            atomic_files.write(folder / "run.json", environment)
            atomic_files.replace_file(folder / "run.toml", settings)
    except OSError as error:
        raise UsageError("run_folder_not_writable", folder=folder, reason=error.strerror) from None


def checkpoint_facts(config: RunConfig, data_sha256: str, device: torch.device, world: Distributed) -> dict[str, Any]:
    """Return the facts stored in the manifest of every checkpoint."""
    return {
        "config_sha256": json_sha256(learning_relevant_config(config)),
        "data_sha256": data_sha256,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "world_size": world.size,
        "device": device.type,
    }


def learning_relevant_config(config: RunConfig) -> dict[str, Any]:
    """Return the settings that differ from their defaults, so that a new setting changes nothing.

    Placement is excluded: a run may be resumed with weights and activations elsewhere. Decoding settings have their
    names of version 0.1.0, so that its checkpoints have the same checksum.
    """
    train = config.train.replace(**{name: type(config.train).model_fields[name].default for name in PLACEMENT_SETTINGS})
    found = resolve_config(config.replace(train=train), include_defaults=False)
    if "generation" in found:
        found["generation"] = rename_settings(found["generation"], _OLD_NAMES, _OLD_VALUES, warn=False)
    return found


def machine_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe machine differences that may change rounding, one line each."""
    return [
        f"{name} was {before[name]} and is {now[name]}: the last bits may differ"
        for name in MACHINE_FACTS
        if before[name] != now[name]
    ]


def describe_environment(
    config: RunConfig, device: torch.device, world: Distributed, threads: int | None
) -> dict[str, Any]:
    """Return facts outside the settings that may matter later. `threads` is None if not chosen yet."""
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
