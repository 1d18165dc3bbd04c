"""Run by test_compile.py: trains on batches of many shapes, compiled and not, and prints the number of compilations."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch._dynamo.testing import CompileCounter

from attendo.data.batch import Batch, Example, collate
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.train.config import TrainConfig
from attendo.train.update import Updater


def main(mode: str, r_drop: float) -> None:
    counter = CompileCounter()
    torch.compile = partial(torch.compile, backend=counter)
    layers = (
        2 if mode == "blocks" else 1
    )  # equal blocks are compiled once; a complete network takes longer with its depth
    compiled, plain = (make_updater(each, r_drop, layers) for each in (mode, "off"))
    for batch in batches():
        losses = [each.update([batch]).loss for each in (compiled, plain)]
        torch.testing.assert_close(*losses)
    before = counter.frame_count
    for each in (compiled, plain):
        each.network(batch.source_ids, batch.target_ids, batch.source_mask)  # as in generation
    assert counter.frame_count == before, "compiled outside training"
    print(before)


def make_updater(mode: str, r_drop: float, layers: int) -> Updater:
    sizes = {"vocab_size": 17, "d_model": 16, "num_heads": 2, "d_ff": 24}
    config = ModelConfig(**sizes, num_encoder_layers=layers, num_decoder_layers=layers, dropout=0.0)
    settings = TrainConfig(steps=9, warmup=1, peak_lr=0.01, compile=mode, r_drop=r_drop, workers=0)
    return Updater(Transformer(config, torch.Generator().manual_seed(0)), settings)


def batches() -> Iterator[Batch]:
    for pairs in (2, 3, 5, 4, 7):
        rows = [Example([5, 6, 7, 8][: 2 + n % pairs % 3], [7, 6, 5]) for n in range(pairs)]
        yield replace(collate(rows), numbers=tuple(range(pairs)))  # the numbers of the pairs, as in training data
        yield collate([Example([5, 6, 7], [8, 9])] * pairs)  # no padding


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
