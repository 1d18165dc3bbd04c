"""What Hugging Face's parameters mean to a model of ours. What has no meaning here is refused by name."""

from dataclasses import dataclass
from typing import Any

from attendo.serve.errors import Refusal

# The settings of a search, by the names that transformers has for them.
_NUMBERS: dict[str, tuple[str, type]] = {
    "num_beams": ("beam", int),
    "num_beam_groups": ("groups", int),
    "diversity_penalty": ("diversity", float),
    "length_penalty": ("length_penalty", float),
    "max_length": ("max_length", int),
    "max_new_tokens": ("max_length", int),
    "min_length": ("min_length", int),
    "min_new_tokens": ("min_length", int),
    "no_repeat_ngram_size": ("no_repeat_ngram", int),
    "repetition_penalty": ("repetition_penalty", float),
    "seed": ("seed", int),
    "temperature": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "typical_p": ("typical", float),
}
# What changes nothing, or nothing with these values; None: with any.
_HARMLESS: dict[str, tuple[Any, ...] | None] = {
    "clean_up_tokenization_spaces": None,
    "truncation": None,  # what is too long is refused, not cut
    "use_cache": None,
    "early_stopping": None,
    "return_full_text": (False,),
    "details": (False,),
    "decoder_input_details": (False,),
    "watermark": (False,),
    "num_return_sequences": (1,),
    "best_of": (1,),
    "stop": ([],),
}
_MOST = 1e9  # beyond it numbers only overflow


@dataclass(frozen=True)
class Parameters:
    source: str | None
    target: str | None
    decoding: dict[str, Any]


def parameters_of(body: dict[str, Any]) -> Parameters:
    """Those for decoding may stand among the others, or apart in generate_parameters."""
    given = dict(_object(body, "parameters"))
    decoding = _object(given, "generate_parameters")
    given.pop("generate_parameters", None)
    source, target = (_language(given, name) for name in ("src_lang", "tgt_lang"))
    return Parameters(source, target, {**given, **decoding})


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """As `TextModel.generate` takes them; null is as if left out."""
    given = {name: value for name, value in given.items() if value is not None}
    unused = [name for name in given if name not in _NUMBERS and name not in _HARMLESS and name != "do_sample"]
    unused += [
        name for name, values in _HARMLESS.items() if values is not None and given.get(name, values[0]) not in values
    ]
    if unused:
        # The client reads these words, and asks again without what is named.
        raise Refusal("hf_unused", names=", ".join(repr(name[:40]) for name in unused[:20]))
    options = {ours: _number(given, name, kind) for name, (ours, kind) in _NUMBERS.items() if name in given}
    if options.get("min_length") == 0:  # the default of transformers
        del options["min_length"]
    if "do_sample" in given:
        options["sample"] = _truth(given, "do_sample")
    return options


def _object(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Refusal("hf_object", name=name)
    return found


def _language(values: dict[str, Any], name: str) -> str | None:
    found = values.pop(name, None)
    if found is not None and not isinstance(found, str):
        raise Refusal("hf_value", name=name, value=_shown(found))
    return found or None


def _number(values: dict[str, Any], name: str, kind: type) -> Any:
    value = values[name]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
    if not fits or (kind is int and value != int(value)):
        raise Refusal("hf_value", name=name, value=_shown(value))
    return kind(value)


def _truth(values: dict[str, Any], name: str) -> bool:
    value = values[name]
    if not isinstance(value, bool):
        raise Refusal("hf_value", name=name, value=_shown(value))
    return value


def _shown(value: Any) -> str:
    return repr(value)[:40]
