"""A server of several small models: English to Chinese and back, summaries, and one that says nothing of itself."""

from functools import cache
from typing import Any

from small_server import Asking, random_model
from tiny import SOURCES, TARGETS

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard
from attendo.text_model import TextModel

ENGLISH, CHINESE = "the cat sat", "猫 坐 着"
assert ENGLISH in SOURCES
assert CHINESE in TARGETS


@cache
def models() -> dict[str, TextModel]:
    sizes: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return {name: random_model(seed, **sizes) for seed, name in enumerate(("forth", "back", "short", "plain"), start=1)}


@cache
def said(name: str, text: str = ENGLISH, **options: Any) -> str:
    """What a model answers when it is asked alone."""
    return models()[name].generate([text], **options)[0].text


ABOUT = {
    "forth": ModelCard(task="translation", source_language="en", target_language="zh"),
    "back": ModelCard(task="translation", source_language="zh", target_language="en"),
    "short": ModelCard(task="summarization"),
    "plain": ModelCard(),
}


def served(*names: str) -> list[ModelSpec]:
    return [ModelSpec(name, models()[name], about=ABOUT[name]) for name in names or ABOUT]


def asking(*names: str, **settings: Any) -> Asking:
    return Asking(*served(*names), settings=ServeSettings(**settings))
