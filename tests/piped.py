"""Small models for every task of a pipeline, untrained, with something to say."""

from functools import cache
from typing import Any

import torch
from tiny import SIZES, SOURCES, TARGETS

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import EOS, Characters, Words
from attendo.text.model_card import TURN_SEPARATOR
from attendo.text_model import TextModel

QUIET = (
    "ignore::attendo.pipelines.text_pipeline.IncompleteWarning"  # for answers of what is untrained, which seldom end
)
TURNS = ["the cat sat", "a dog ran home", "I love NLP", "I saw the small cat"]


@cache
def answering(turns: bool = False, **about: Any) -> TextModel:
    """Reads a source; `turns`: also the symbol between the turns of a conversation."""
    source = Words.build(SOURCES, symbols=(TURN_SEPARATOR,) if turns else ())
    target = Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    return _loud(StoredModel(_network(**sizes), source, target, {"max_length_extra": 5}, about=dict(about)))


@cache
def continuing(kind: str = "characters") -> TextModel:
    """Goes on with a text."""
    tokenizer = Words.build(SOURCES, symbols=("<line>",)) if kind == "words" else Characters.build(SOURCES)
    network = _network(vocab_size=tokenizer.vocab_size, num_encoder_layers=0)
    about = {"task": "generation"}
    return _loud(StoredModel(network, tokenizer, tokenizer, {"max_length_extra": 5}, about=about))


def only(told: Any) -> Any:
    """What a pipeline tells, without what it says of how it came about."""
    return [only(each) for each in told] if isinstance(told, list) else dict([next(iter(told.items()))])


def _network(**changes: Any) -> Transformer:
    return Transformer(ModelConfig(**{**SIZES, "tie": "none", **changes}), torch.Generator().manual_seed(6))


def _loud(stored: StoredModel) -> TextModel:
    """With logits so far apart that answers differ, and many end by themselves."""
    with torch.no_grad():
        stored.network.output.weight.mul_(3.0)
        stored.network.output.weight[EOS].mul_(2.0)
    return TextModel(stored)
