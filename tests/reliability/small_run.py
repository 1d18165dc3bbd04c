"""A run that trains in 1 s on generated sentences, and the outcome by which finished runs are compared."""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from attendo.runs.config import RunConfig, to_toml
from attendo.runs.run import Run

CPU = torch.device("cpu")
STEPS = 24
VALIDATED_AT = 9

LETTERS = "abcdefgh"


def write_text(folder: Path, pairs: int = 240, words: tuple[int, int] = (2, 8), seed: int = 0) -> dict[str, str]:
    """Write two parallel files: the target is the reversed source in capitals. Returns data settings of a run."""
    chance = random.Random(seed)
    sources = [
        " ".join(chance.choice(LETTERS) + chance.choice(LETTERS) for _ in range(chance.randint(*words)))
        for _ in range(pairs)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    files = {"source": folder / "text.source", "target": folder / "text.target"}
    files["source"].write_text("".join(f"{line}\n" for line in sources), "utf-8")
    files["target"].write_text("".join(f"{line[::-1].upper()}\n" for line in sources), "utf-8")
    return {name: str(path) for name, path in files.items()}


def run_config(data: Mapping[str, Any], train: Mapping[str, Any] | None = None, **changes: Any) -> RunConfig:
    """A run of 24 steps, with about 10 steps per epoch. `train` overrides its training settings."""
    training = {
        "steps": STEPS,
        "batch_tokens": 200,
        "warmup": 5,
        "peak_lr": 3e-3,
        "validate_every": VALIDATED_AT,
        "save_every": 7,
        "samples": 0,
        "workers": 0,
        **(train or {}),
    }
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_encoder_layers": 1, "num_decoder_layers": 1}
    values: dict[str, Any] = {
        "seed": 3,
        "preset": "tiny",
        "data": dict(data),
        "tokenizer": {} if "prepared" in data else {"kind": "words"},
        **changes,
        "model": {**sizes, "dropout": 0.0, **changes.get("model", {})},
        "train": training,
    }
    return RunConfig(**values)


def write_run_file(path: Path, config: RunConfig) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(config), "utf-8")
    return path


def begin(config: RunConfig, folder: Path) -> Run:
    return build_run(Run.begin(config, folder, CPU))


def resume(folder: Path) -> Run:
    """Resume as a new process would: the random state of this process must not matter."""
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    return build_run(Run.resume(folder, CPU))


def train_to_the_end(run: Run) -> Run:
    for _ in run.train():
        pass
    run.finish()
    return run


def build_run(run: Run) -> Run:
    for _ in run.prepare():
        pass
    run.build()
    return run


@dataclass(frozen=True)
class Outcome:
    """All results of a run that must be equal, bit for bit, in two equal runs."""

    model: str
    optimizer: str
    random: str
    state: dict[str, Any]
    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]
    written_model: str  # the weights in the model folder


def outcome(folder: Path, step: int = STEPS) -> Outcome:
    checkpoint = folder / "checkpoints" / f"step-{step:08d}"
    state = json.loads((checkpoint / "state.json").read_text("utf-8"))
    del state["seconds"]
    lines = reports(folder)
    for line in lines:
        line.pop("seconds", None)
        line.pop("waited", None)
    return Outcome(
        model=sha256(checkpoint / "model.safetensors"),
        optimizer=sha256(checkpoint / "optimizer.safetensors"),
        random=_random_state(checkpoint / "random.safetensors"),
        state=state,
        steps=[line for line in lines if line["kind"] == "step"],
        validations=[line for line in lines if line["kind"] == "validation"],
        written_model=sha256(folder / "model" / "weights.safetensors"),
    )


def _random_state(path: Path) -> str:
    """The random state of training, without Python's `random`, which the type checker of the tests uses."""
    tensors = sorted((name, tensor) for name, tensor in load_file(path).items() if not name.endswith("/python"))
    return hashlib.sha256(b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in tensors)).hexdigest()


def reports(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of metrics.jsonl. A line truncated by a kill is ignored."""
    lines = (folder / "metrics.jsonl").read_text("utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def last_acknowledged_step(folder: Path) -> int:
    """The last step whose checkpoint was reported as safe."""
    if not (folder / "metrics.jsonl").exists():
        return 0
    return max((line["step"] for line in reports(folder) if line["kind"] == "saved"), default=0)


def leftover_files(folder: Path) -> list[str]:
    """Hidden files that should have been removed, except locks: the lock of a killed process blocks no one."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*") if path.name != ".lock")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
