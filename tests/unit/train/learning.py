"""Small batches, a learner of a small network, and a stream of batches for tests of training."""

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


def batch(*examples: Example) -> Batch:
    """With numbers, as those of training data have them: the first id of each source."""
    made = collate(examples)
    return Batch(
        made.source_ids, made.source_mask, made.target_ids, made.labels, tuple(int(each.source[0]) for each in examples)
    )


BATCH, OTHER, BOTH = batch(*SHORT), batch(*LONG), batch(*SHORT, *LONG)


def config(**changes: Any) -> TrainConfig:
    usual = {"steps": 6, "warmup": 2, "peak_lr": 1e-2, "validate_every": 4, "save_every": 3, "workers": 0}
    return TrainConfig(**{**usual, **changes})


def learner(settings: TrainConfig | None = None, world: Distributed | None = None, **sizes: Any) -> Updater:
    """Always with the same first weights."""
    network = Transformer(ModelConfig(**{**SIZES, **sizes}), torch.Generator().manual_seed(0))
    return Updater(network, settings or config(), world or Distributed())


class ListStream(BatchStream):
    """The same batches again and again; an epoch is one time through."""

    def __init__(self, batches: Sequence[Batch] = (BATCH, OTHER)) -> None:
        self.list = batches
        self.taken = 0
        self.closed = False

    def batches(
        self, position: Position = START_POSITION, workers: int = 0, pin: bool = False
    ) -> Generator[BatchWithPosition, None, None]:
        epoch, place = position.epoch, position.batch
        try:
            while True:
                self.taken += 1
                here = self.list[place]
                place += 1
                if place == len(self.list):
                    epoch, place = epoch + 1, 0
                yield BatchWithPosition(here, Position(epoch, 0, place))
        finally:
            self.closed = True
