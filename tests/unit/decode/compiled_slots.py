"""Run by test_compiling.py: slots whose work is compiled answer as those whose work is not, prefixes included."""

import sys
from functools import partial

import torch

from attendo.decode.beam import Beam
from attendo.decode.engines import TextbookEngine
from attendo.decode.requests import Answers, Request
from attendo.decode.rules import Forbid, Prefix, RepetitionPenalty
from attendo.decode.static_batch import Slots, SlotSizes
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

SIZES = {"vocab_size": 17, "d_model": 16, "num_heads": 2, "d_ff": 24, "num_encoder_layers": 0, "num_decoder_layers": 1}
PREFIXES = [(5, 6, 7, 8), (), (9,), (10, 11)]


def told(answers: Answers) -> dict[int, list[list[int]]]:
    return {request.number: each.ids[:, :10].tolist() for request, each in answers.one_by_one()}


def compare(backend: str) -> None:
    torch.compile = partial(torch.compile, backend=backend)
    network = Transformer(ModelConfig(**SIZES, tie="none"), torch.Generator().manual_seed(0)).eval()
    asked = [Request(number, (), 8, prefix=prefix) for number, prefix in enumerate(PREFIXES)]
    rules = (RepetitionPenalty(1.2), Forbid(), Prefix())
    (expected,) = TextbookEngine(network, 1000).answers(asked, Beam(2), rules)
    slots = Slots(network, Beam(2), rules, SlotSizes(4, 2, 10, 6), compiled=True)
    found = {number: ids for each in slots.answers(asked) for number, ids in told(each).items()}
    assert found == told(expected), (found, told(expected))


if __name__ == "__main__":
    compare(sys.argv[1])
    print("equal")
