"""How an answer is found: what OpenAI's parameters mean to a model of ours."""

import secrets
from dataclasses import dataclass
from typing import Any

from attendo.serve.errors import Refusal
from attendo.serve.openai.requests import Wanted
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

_LEAST_TEMPERATURE, _LEAST_SHARE = 0.01, 1e-6  # below these the most probable token is drawn anyway
_SEEDS = 2**32  # any seed stands for one of these


@dataclass(frozen=True)
class Decoding:
    """`options` as of `TextModel.generate`; `most_tokens` of a whole answer; where it ends before its time.

    `echo`: the prompt is said again before it.
    """

    options: dict[str, Any]
    most_tokens: int | None
    stops: tuple[str, ...]
    echo: bool = False

    def is_plain(self, model: TextModel) -> bool:
        """Whether every token is chosen by what stands before it alone, not by how hypotheses compare at the end."""
        own = model.generation
        return self.options.get("beam", own.beam) == 1 and self.options.get("mbr", own.mbr) == "none"


def decoding_of(asked: Wanted, model: TextModel, settings: ServeSettings) -> Decoding:
    """Without a temperature, or with 0, a model decodes as it always does: its beam, or greedily."""
    name, most = asked.most_tokens
    if most is not None and most > settings.answer_tokens:
        raise Refusal("above_limit", {"param": name}, name=name, value=most, most=settings.answer_tokens)
    count = asked.n or 1
    if count > settings.beam:
        raise Refusal("above_limit", {"param": "n"}, name="n", value=count, most=settings.beam)
    options = _sampling(asked) if _samples(asked) else _searching(model, count)
    return Decoding({**options, "n_best": count}, most, asked.stops, asked.echoes)


def _samples(asked: Wanted) -> bool:
    if asked.temperature is None:
        return asked.top_p is not None and asked.top_p < 1
    return asked.temperature > 0


def _sampling(asked: Wanted) -> dict[str, Any]:
    seed = secrets.randbelow(_SEEDS) if asked.seed is None else asked.seed % _SEEDS
    return {
        "sample": True,
        "beam": 1,
        "groups": 1,
        "mbr": "none",
        "seed": seed,
        "temperature": max(_LEAST_TEMPERATURE, asked.temperature or 1.0),
        "top_p": None if asked.top_p is None else max(_LEAST_SHARE, asked.top_p),
    }


def _searching(model: TextModel, count: int) -> dict[str, Any]:
    """The best of a beam that is wide enough."""
    own = model.generation
    return {} if own.sample or own.beam >= count else {"beam": count, "groups": 1}
