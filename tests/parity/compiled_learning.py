"""Run by test_compile.py: learns from batches of many shapes, and tells how often the loss had to be compiled."""

import sys
from dataclasses import replace
from functools import partial

import torch
from torch._dynamo.testing import CompileCounter

from attendo.data.batch import Example, collate
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.train.config import TrainConfig
from attendo.train.learner import Learner


def compiled(r_drop: float) -> int:
    counter = CompileCounter()
    torch.compile = partial(torch.compile, backend=counter)
    config = ModelConfig(vocab_size=17, d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1, num_decoder_layers=1)
    settings = TrainConfig(steps=9, warmup=1, compile="on", r_drop=r_drop, workers=0)
    learner = Learner(Transformer(config, torch.Generator().manual_seed(0)), settings)
    for pairs in (2, 3, 5, 4, 7):
        rows = [Example([5, 6, 7, 8][: 2 + n % pairs % 3], [7, 6, 5]) for n in range(pairs)]
        batch = replace(collate(rows), numbers=tuple(range(pairs)))  # which pairs they are, as training data tells
        learner.update([batch])
    return counter.frame_count


if __name__ == "__main__":
    print(compiled(float(sys.argv[1])))
