"""Run by test_compiled_static_batch.py: compares a compiled static batch with the textbook engine, with prefixes."""

import sys
from functools import partial

import torch

from attendo.decode.beam import Beam
from attendo.decode.engines import TextbookEngine
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.rules import ForcedPrefix, RepetitionPenalty, SuppressTokens
from attendo.decode.static_batch import BatchShape, StaticBatch
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

SIZES = {"vocab_size": 17, "d_model": 16, "num_heads": 2, "d_ff": 24, "num_encoder_layers": 0, "num_decoder_layers": 1}
PREFIXES = [(5, 6, 7, 8), (), (9,), (10, 11)]


def ids_by_request(answers: FinishedBatch) -> dict[int, list[list[int]]]:
    return {request.request_id: each.ids[:, :10].tolist() for request, each in answers.split()}


def compare(backend: str) -> None:
    torch.compile = partial(torch.compile, backend=backend)
    network = Transformer(ModelConfig(**SIZES, tie="none"), torch.Generator().manual_seed(0)).eval()
    requests = [DecodeRequest(number, (), 8, prefix=prefix) for number, prefix in enumerate(PREFIXES)]
    rules = (RepetitionPenalty(1.2), SuppressTokens(), ForcedPrefix())
    (expected,) = TextbookEngine(network, 1000).generate(requests, Beam(2), rules)
    batch = StaticBatch(network, Beam(2), rules, BatchShape(4, 2, 10, 6), compiled=True)
    found = {number: ids for each in batch.generate(requests) for number, ids in ids_by_request(each).items()}
    assert found == ids_by_request(expected), (found, ids_by_request(expected))


if __name__ == "__main__":
    compare(sys.argv[1])
    print("equal")
