"""Untrained models whose answers differ in length, for every kind of tokenizer."""

import random
from typing import Any

import torch
from tiny import SIZES, SOURCES, TARGETS, tiny_model

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import EOS, Bytes, Characters, SentencePiece, Tokenizer
from attendo.text_model import TextModel

WORDS = tuple(sorted({word for text in SOURCES for word in text.split()}))


def varied_model(seed: int = 2, **changes: Any) -> TextModel:
    """Scales the logits so that answers differ in length and many end before the limit."""
    return scale_logits(tiny_model(seed, tie="none", **changes))


def make_model(tokenizer: Tokenizer, seed: int = 1) -> TextModel:
    config = ModelConfig(**SIZES, vocab_size=tokenizer.vocab_size, tie="none")
    network = Transformer(config, torch.Generator().manual_seed(seed))
    return scale_logits(TextModel(StoredModel(network, tokenizer, tokenizer, {"max_length_extra": 9})))


def scale_logits(model: TextModel) -> TextModel:
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    return model


def pieces_model() -> TextModel:
    return make_model(SentencePiece.train([*SOURCES, *TARGETS, "the cat scattered"] * 4, 330))


def bytes_model() -> TextModel:
    return make_model(Bytes())


def characters_model() -> TextModel:
    return make_model(Characters.build([*SOURCES, *TARGETS]))


def sentences(count: int, longest: int = 12) -> list[str]:
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, longest))) for _ in range(count)]
