"""Small untrained models for every task of a pipeline, with outputs that are not empty."""

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

# Outputs of untrained models seldom end before the length limit.
QUIET = "ignore::attendo.pipelines.text_pipeline.IncompleteWarning"
TURNS = ["the cat sat", "a dog ran home", "I love NLP", "I saw the small cat"]


@cache
def answering(turns: bool = False, **about: Any) -> TextModel:
    """A model with a source. `turns` adds the separator between the turns of a conversation."""
    source = Words.build(SOURCES, symbols=(TURN_SEPARATOR,) if turns else ())
    target = Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    return _scale_logits(StoredModel(_network(**sizes), source, target, {"max_length_extra": 5}, about=dict(about)))


@cache
def continuing(kind: str = "characters") -> TextModel:
    """A decoder-only model that continues a text."""
    tokenizer = Words.build(SOURCES, symbols=("<line>",)) if kind == "words" else Characters.build(SOURCES)
    network = _network(vocab_size=tokenizer.vocab_size, num_encoder_layers=0)
    about = {"task": "generation"}
    return _scale_logits(StoredModel(network, tokenizer, tokenizer, {"max_length_extra": 5}, about=about))


def only(result: Any) -> Any:
    """The first field of each result of a pipeline, without the fields that attendo adds."""
    return [only(each) for each in result] if isinstance(result, list) else dict([next(iter(result.items()))])


def _network(**changes: Any) -> Transformer:
    return Transformer(ModelConfig(**{**SIZES, "tie": "none", **changes}), torch.Generator().manual_seed(6))


def _scale_logits(stored: StoredModel) -> TextModel:
    """Spreads the logits, so that outputs differ and many end with EOS."""
    with torch.no_grad():
        stored.network.output.weight.mul_(3.0)
        stored.network.output.weight[EOS].mul_(2.0)
    return TextModel(stored)
