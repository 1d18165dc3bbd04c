"""The decoding defaults that an exported folder takes along: whether its engine can answer by them, and by which others
it does.
"""

from collections.abc import Callable
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.errors import ModelError, UsageError
from attendo.interop.ctranslate2_options import check_options, own_meaning
from attendo.interop.outside import check_onnx
from attendo.text_model import Wishes
from attendo.text_model.wishes import divided

OF_THE_MACHINE = ("engine", "compile", "precision", "batch_tokens")  # settings for the computer of the model folder


def portable(generation: dict[str, Any]) -> dict[str, Any]:
    """What such a folder answers by: all but what was meant for another computer."""
    return {name: value for name, value in generation.items() if name not in OF_THE_MACHINE}


def ctranslate2_notes(generation: dict[str, Any]) -> list[str]:
    """What else its search means by the settings; a `ModelError` where it could not answer unless told otherwise."""
    stored = GenerationConfig(**portable(generation))
    meant = own_meaning(stored, {})
    _check(meant, check_options)
    changed = [name for name in _named(stored) if getattr(stored, name) != getattr(meant, name)]
    if not changed:
        return []
    told = (f"{name} is {getattr(meant, name)}, not {getattr(stored, name)}" for name in changed)
    return [f"CTranslate2 does not search by all settings of the model: {', '.join(told)}"]


def require_onnx(generation: dict[str, Any]) -> None:
    """A `ModelError` where ONNX Runtime could not answer unless told otherwise; all else is as ever."""
    _check(GenerationConfig(**portable(generation)), check_onnx)


def _named(config: GenerationConfig) -> list[str]:
    """Settings that say something in this search."""
    names = ["stop", "renormalise"] if config.beam > 1 else []
    return [*names, "at_limit", *(["repetition_of"] if config.repetition_penalty != 1 else [])]


def _check(config: GenerationConfig, check: Callable[[Wishes, GenerationConfig], None]) -> None:
    try:
        check(*divided(config, {}))
    except UsageError as error:
        raise ModelError("stored_settings_unsupported", error=error) from None
