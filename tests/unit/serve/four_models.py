"""A server of four small models: English to Chinese, Chinese to English, summarisation, and one without a task."""

from functools import cache
from typing import Any

from small_server import SmallServer, random_model
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
def generate_text(name: str, text: str = ENGLISH, **options: Any) -> str:
    """The text that a model generates for one text."""
    return models()[name].generate([text], **options)[0].text


MODEL_CARDS = {
    "forth": ModelCard(task="translation", source_language="en", target_language="zh"),
    "back": ModelCard(task="translation", source_language="zh", target_language="en"),
    "short": ModelCard(task="summarization"),
    "plain": ModelCard(),
}


def make_specs(*names: str) -> list[ModelSpec]:
    return [ModelSpec(name, models()[name], about=MODEL_CARDS[name]) for name in names or MODEL_CARDS]


def make_server(*names: str, **settings: Any) -> SmallServer:
    return SmallServer(*make_specs(*names), settings=ServeSettings(**settings))
