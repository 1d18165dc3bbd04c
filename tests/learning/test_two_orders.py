"""A target in either order: a graph learns the two orders, not a mixture of their tokens."""

import math
import random

import pytest
import torch

from attendo.data.batch import Batch, Example, collate
from attendo.model.config import ModelConfig
from attendo.model.parallel import ParallelTransformer
from attendo.train.config import TrainConfig
from attendo.train.parallel_loss import sentence_losses
from attendo.train.update import Updater

TOKENS = range(4, 24)
SIZES = {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_encoder_layers": 2, "num_decoder_layers": 2}


def make_batch(draw: random.Random, size: int, order: int | None = None) -> Batch:
    """Pairs whose target is the source or its reversal: `order` 1 or -1, or any of them."""
    sources = [draw.sample(TOKENS, 2) for _ in range(size)]
    return collate([Example(source, source[:: order or draw.choice((1, -1))]) for source in sources])


def train(seed: int) -> ParallelTransformer:
    config = ModelConfig(vocab_size=TOKENS.stop, kind="graph", upsample=4, dropout=0.0, tie="all", **SIZES)
    network = ParallelTransformer(config, torch.Generator().manual_seed(seed))
    settings = {"peak_lr": 2e-3, "warmup": 100, "schedule": "cosine", "label_smoothing": 0.0}
    updater, draw = Updater(network, TrainConfig(steps=1000, **settings)), random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(450):
        updater.update([make_batch(draw, 32)])
    return network.eval()


def measure_losses(network: ParallelTransformer) -> list[float]:
    """The mean loss of a sentence in each order."""
    losses, draw = [], random.Random(9)
    for order in (1, -1):
        batch = make_batch(draw, 64, order)
        with torch.no_grad():
            found = sentence_losses(network, batch.source_ids, batch.source_mask, batch.labels)
        losses.append(float(found.mean()))
    return losses


@pytest.mark.slow
def test_a_graph_separates_two_orders() -> None:
    """One bit for the order, not one for each token: some vertices belong to one order only. A start may fail."""
    one_bit = math.log(2)
    assert any(max(measure_losses(train(seed))) < 1.3 * one_bit for seed in range(3))
