"""A server of three small models: English to Chinese, Chinese to English, and one without a task."""

from functools import cache
from typing import Any

from small_server import SmallServer, random_model
from tiny import SOURCES, TARGETS

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard
from attendo.text_model import TextModel

ENGLISH, CHINESE = SOURCES[1], TARGETS[1]
KEY = "right-key-of-this-server"
MODEL_CARDS = {
    "forth": ModelCard(task="translation", source_language="en", target_language="zh"),
    "back": ModelCard(task="translation", source_language="zh", target_language="en"),
    "plain": ModelCard(),
}


@cache
def models() -> dict[str, TextModel]:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return {name: random_model(seed, **sizes) for seed, name in enumerate(MODEL_CARDS, start=2)}


def make_server(*names: str, **settings: Any) -> SmallServer:
    specs = [ModelSpec(name, models()[name], about=MODEL_CARDS[name]) for name in names or MODEL_CARDS]
    return SmallServer(*specs, settings=ServeSettings(**settings))
