"""Small batches, an updater of a small network and a stream of batches for training tests."""

from collections.abc import Generator, Sequence
from typing import Any

import torch

from attendo.data.batch import Batch, Example, collate
from attendo.data.sampler import START_POSITION, BatchStream, BatchWithPosition, Position
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed
from attendo.train.update import Updater

SIZES: dict[str, Any] = {
    "vocab_size": 17,
    "d_model": 16,
    "num_heads": 4,
    "d_ff": 24,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "dropout": 0.0,
}

SHORT = [Example([5, 6, 7], [7, 6, 5]), Example([8, 9], [9, 8])]
LONG = [Example([10, 5, 11, 6, 12], [5, 10, 11, 12, 13, 14])]


def make_batch(*examples: Example) -> Batch:
    """A batch with pair numbers, as in training data: the first id of each source."""
    made = collate(examples)
    return Batch(
        made.source_ids, made.source_mask, made.target_ids, made.labels, tuple(int(each.source[0]) for each in examples)
    )


BATCH, OTHER, BOTH = make_batch(*SHORT), make_batch(*LONG), make_batch(*SHORT, *LONG)


def config(**changes: Any) -> TrainConfig:
    usual = {"steps": 6, "warmup": 2, "peak_lr": 1e-2, "validate_every": 4, "save_every": 3, "workers": 0}
    return TrainConfig(**{**usual, **changes})


def make_updater(settings: TrainConfig | None = None, world: Distributed | None = None, **sizes: Any) -> Updater:
    """An updater that always has the same initial weights."""
    network = Transformer(ModelConfig(**{**SIZES, **sizes}), torch.Generator().manual_seed(0))
    return Updater(network, settings or config(), world or Distributed())


class ListStream(BatchStream):
    """Repeats the same batches; one pass is an epoch."""

    def __init__(self, batches: Sequence[Batch] = (BATCH, OTHER)) -> None:
        self.list = batches
        self.taken = 0
        self.closed = False

    def batches(
        self, position: Position = START_POSITION, workers: int = 0, pin: bool = False
    ) -> Generator[BatchWithPosition, None, None]:
        epoch, index = position.epoch, position.batch
        try:
            while True:
                self.taken += 1
                batch = self.list[index]
                index += 1
                if index == len(self.list):
                    epoch, index = epoch + 1, 0
                yield BatchWithPosition(batch, Position(epoch, 0, index))
        finally:
            self.closed = True
