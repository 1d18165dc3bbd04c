"""Presets: settings that mean what other systems mean by theirs.

                 beam   score(y)                                 a beam stops       at the limit    what is forbidden
    fairseq      5      log p / |y| ** length_penalty            first_come         end             keeps its share
    hf           1      log p / |y| ** length_penalty            settled            free            keeps its share
    ctranslate2  2      log p / |y| ** length_penalty            first or leader    free            leaves its share
    marian       12     (log p - word_penalty * |y|)             shrinking          free            keeps its share
                        / |y| ** length_penalty

Formulas are in `ranking.py`, stop rules in `beam.py`. What differs all the same is told in docs/decoding/like.md.
"""

import math
from collections.abc import Mapping
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.settings import suggest_name

PRESETS: dict[str, dict[str, Any]] = {
    "fairseq": {
        "beam": 5,
        "stop": "first_come",
        "at_limit": "end",
        "min_length_extra": 1,
        "max_length_factor": 0.0,
        "max_length_extra": 200,
    },
    "hf": {
        "beam": 1,
        "stop": "settled",
        "at_limit": "free",
        "repetition_of": "logits",
        "max_length_factor": 0.0,
        "max_length_extra": 20,
        "top_k": 50,
    },
    "ctranslate2": {
        "beam": 2,
        "stop": "first",
        "at_limit": "free",
        "repetition_of": "logits",
        "renormalise": True,
        "min_length_extra": 1,
        "max_length_factor": 0.0,
        "max_length_extra": 256,
    },
    "marian": {
        "beam": 12,
        "length_penalty": 0.0,
        "stop": "shrinking",
        "at_limit": "free",
        "allow_unk": False,
        "max_length_factor": 3.0,
        "max_length_extra": 3,
    },
}

_RUNTIME_SETTINGS = ("max_source", "long_source", "batch_tokens", "engine", "compile", "precision")
_MODEL_SETTINGS = ("source_prefix", "target_prefix")


def preset(
    name: str, options: Mapping[str, Any] | None = None, model_config: GenerationConfig | None = None
) -> GenerationConfig:
    """The defaults of that system, changed where a value is given, which then means what it means there.

    `model_config`: the settings of a model. What it says of the machine and of prefixes stays, all else is theirs.
    """
    if name not in PRESETS:
        raise UsageError(
            "unknown_like_system", name=name, known=", ".join(PRESETS), suggestion=suggest_name(name, list(PRESETS))
        )
    options = {key: value for key, value in (options or {}).items() if value is not None}
    kept = (
        {}
        if model_config is None
        else {key: getattr(model_config, key) for key in (*_RUNTIME_SETTINGS, *_MODEL_SETTINGS)}
    )
    config = GenerationConfig(**{**kept, **PRESETS[name], **options})
    return config.override(**{**_dependent_settings(name, config), **options})


def _dependent_settings(name: str, config: GenerationConfig) -> dict[str, Any]:
    """What a system makes depend on its other settings."""
    match name:
        case "hf" if config.beam > 1 and not config.sample:  # one row is penalised by its logits, several are not
            return {"repetition_of": "log_probabilities"}
        case "ctranslate2" if config.length_penalty == config.coverage_penalty == 0:
            return {"stop": "leader"}  # what was ahead of all when it ended stays ahead
        case "marian":  # the factor is for the source with its eos
            return {"max_length_extra": max(1, math.ceil(config.max_length_factor))}
        case _:
            return {}
