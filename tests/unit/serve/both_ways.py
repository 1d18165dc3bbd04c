"""A server of three small models, for the APIs that name languages or models: forth, back, and one without a task."""

from functools import cache
from typing import Any

from small_server import Asking, random_model
from tiny import SOURCES, TARGETS

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard
from attendo.text_model import TextModel

ENGLISH, CHINESE = SOURCES[1], TARGETS[1]
KEY = "right-key-of-this-server"
ABOUT = {
    "forth": ModelCard(task="translation", source_language="en", target_language="zh"),
    "back": ModelCard(task="translation", source_language="zh", target_language="en"),
    "plain": ModelCard(),
}


@cache
def models() -> dict[str, TextModel]:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return {name: random_model(seed, **sizes) for seed, name in enumerate(ABOUT, start=2)}


def asking(*names: str, **settings: Any) -> Asking:
    served = [ModelSpec(name, models()[name], about=ABOUT[name]) for name in names or ABOUT]
    return Asking(*served, settings=ServeSettings(**settings))
