"""Presets: decoding settings that match those of other systems.

                 beam   score(y)                                 a beam stops       at the limit    forbidden tokens
    fairseq      5      log p / |y| ** length_penalty            first_come         force_eos       keep their share
    hf           1      log p / |y| ** length_penalty            settled            any             keep their share
    ctranslate2  2      log p / |y| ** length_penalty            first or leader    any             lose their share
    marian       12     (log p - word_penalty * |y|)             shrinking          any             keep their share
                        / |y| ** length_penalty

The share is the probability of forbidden tokens. If they lose it, the other tokens are renormalised. `ranking.py` has
the formulas, `beam.py` the stop rules. docs/decoding/presets.md lists the remaining differences.
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
        "at_limit": "force_eos",
        "min_length_extra": 1,
        "max_length_factor": 0.0,
        "max_length_extra": 200,
    },
    "hf": {
        "beam": 1,
        "stop": "settled",
        "at_limit": "any",
        "repetition_of": "logits",
        "max_length_factor": 0.0,
        "max_length_extra": 20,
        "top_k": 50,
    },
    "ctranslate2": {
        "beam": 2,
        "stop": "first",
        "at_limit": "any",
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
        "at_limit": "any",
        "allow_unk": False,
        "max_length_factor": 3.0,
        "max_length_extra": 3,
    },
}

_RUNTIME_SETTINGS = ("max_source", "long_source", "batch_tokens", "engine", "compile", "precision")
_MODEL_SETTINGS = ("source_prefix", "source_suffix", "target_prefix", "context_sentences")


def preset(
    name: str, options: Mapping[str, Any] | None = None, model_config: GenerationConfig | None = None
) -> GenerationConfig:
    """Return the defaults of a system, changed by `options`, which have the same meaning as in that system.

    Runtime and prefix settings of `model_config` are kept. The preset replaces its other settings.
    """
    if name not in PRESETS:
        raise UsageError(
            "unknown_decoding_preset", name=name, known=", ".join(PRESETS), suggestion=suggest_name(name, list(PRESETS))
        )
    options = {key: value for key, value in (options or {}).items() if value is not None}
    kept = (*_RUNTIME_SETTINGS, *_MODEL_SETTINGS)
    model_settings = {} if model_config is None else {key: getattr(model_config, key) for key in kept}
    config = GenerationConfig(**{**model_settings, **PRESETS[name], **options})
    return config.override(**{**_dependent_settings(name, config), **options})


def _dependent_settings(name: str, config: GenerationConfig) -> dict[str, Any]:
    """Return the settings that depend on other settings in this system."""
    match name:
        case "hf" if config.beam > 1 and not config.sample:  # only a single row penalises logits
            return {"repetition_of": "log_probabilities"}
        case "ctranslate2" if config.length_penalty == config.coverage_penalty == 0:
            return {"stop": "leader"}  # a hypothesis that led when it ended stays ahead
        case "marian":  # the factor also applies to the source's EOS
            return {"max_length_extra": max(1, math.ceil(config.max_length_factor))}
        case _:
            return {}
