"""A process that makes one update and tells how much memory it took."""

import json
import sys
from pathlib import Path

import torch

from attendo.doctor.memory import Shape
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.train.config import TrainConfig
from attendo.train.update import Learner

_SMALL = ModelConfig(vocab_size=8, d_model=8, num_heads=1, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)


def answer(asked: str) -> str:
    """Settings as JSON, bytes as JSON."""
    wanted = json.loads(asked)
    torch.set_num_threads(wanted["threads"])
    shape, train = Shape(**wanted["shape"]), TrainConfig(**wanted["train"])
    _learner(_SMALL, train).update([Shape(1, 2, 2).batch()])  # loads libraries, which are not the network's memory
    before = _resident("VmRSS")
    learner = _learner(ModelConfig(**wanted["model"]), train)
    learner.update([Shape(1, shape.source, shape.target).batch()])  # from the first update on there are moments
    learner.update([shape.batch()])
    return json.dumps({"bytes": _resident("VmHWM") - before})


def _learner(model: ModelConfig, train: TrainConfig) -> Learner:
    return Learner(Transformer(model, torch.Generator().manual_seed(0)), train)


def _resident(name: str) -> int:
    """Bytes, as Linux tells them. What getrusage tells begins with the peak of the parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise OSError(f"the system does not tell {name}")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(answer(sys.stdin.read()))
