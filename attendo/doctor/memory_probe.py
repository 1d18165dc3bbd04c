"""A separate process that runs one update and reports its peak memory."""

import json
import sys
from pathlib import Path

import torch

from attendo.doctor.memory import TrainingBatchShape, read_proc_bytes, run_updates
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.train.config import TrainConfig
from attendo.train.update import Updater

_TINY_MODEL = ModelConfig(vocab_size=8, d_model=8, num_heads=1, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)


def measure_update(request: str) -> str:
    """Return the peak bytes of an update as JSON. `request` is JSON with the settings."""
    wanted = json.loads(request)
    torch.set_num_threads(wanted["threads"])
    shape, train = TrainingBatchShape(**wanted["shape"]), TrainConfig(**wanted["train"])
    # Load libraries first, so that their memory is not counted.
    _make_updater(_TINY_MODEL, train).update([TrainingBatchShape(1, 2, 2).make_batch()])
    before = _read_status("VmRSS")
    run_updates(_make_updater(ModelConfig(**wanted["model"]), train), shape)
    return json.dumps({"bytes": _read_status("VmHWM") - before})


def _make_updater(model: ModelConfig, train: TrainConfig) -> Updater:
    return Updater(make_network(model, torch.Generator().manual_seed(0)), train)


def _read_status(name: str) -> int:
    """Return a value of /proc/self/status in bytes. The peak of getrusage would include the parent's."""
    if (found := read_proc_bytes("/proc/self/status", name)) is None:
        raise OSError(f"the system does not report {name}")
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(measure_update(sys.stdin.read()))
