"""A prefix LM learns to reverse its source."""

import random

import torch

from attendo.data.batch import Example, collate
from attendo.decode.engines import CachedEngine
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import SuppressTokens
from attendo.decode.strategies import Greedy
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.text import EOS, PAD
from attendo.train.config import TrainConfig
from attendo.train.update import Updater

STEPS, SENTENCES = 120, 48


def test_every_source_is_reversed() -> None:
    dice = random.Random(0)
    config = ModelConfig(
        prefix_lm=True, vocab_size=9, d_model=32, num_heads=4, d_ff=64, num_decoder_layers=2, dropout=0.0,
        tie="all", positions="rotary",
    )  # fmt: skip
    network = make_network(config, torch.Generator().manual_seed(0))
    updater = Updater(
        network, TrainConfig(steps=STEPS, warmup=10, peak_lr=1e-2, schedule="cosine", label_smoothing=0.0)
    )
    for _ in range(STEPS):
        sources = [draw_source(dice) for _ in range(SENTENCES)]
        updater.update([collate([Example(source, source[::-1]) for source in sources])])

    requests = [DecodeRequest(number, tuple(draw_source(dice)), max_length=6) for number in range(60)]
    found = CachedEngine(network.eval(), 1000).generate(requests, Greedy(), (SuppressTokens(),))
    for answers in found:
        for request, hypotheses in answers.split():
            answer = [token for token in hypotheses.ids[0, 1:].tolist() if token not in (PAD, EOS)]
            assert answer == [*reversed(request.source)]


def draw_source(dice: random.Random) -> list[int]:
    """1 to 3 of 5 tokens."""
    return [dice.randrange(4, 9) for _ in range(dice.randint(1, 3))]
