"""What an import brings: a network, the order of its vocabularies, its tokenizers and its ways to answer."""

from dataclasses import dataclass, field
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.errors import ModelError, UsageError
from attendo.interop.huggingface import HuggingFaceFolder
from attendo.interop.rearranged import Rearranged
from attendo.model.transformer import Transformer
from attendo.store import StoredModel
from attendo.text import Tokenizer
from attendo.text_model import TextModel

SEVERAL_LANGUAGES = ("m2m_100", "mbart")

_STOPS = {False: "settled", True: "first", "never": "exhaustive"}
_SAME_MEANING = {
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
}
_OF_SAMPLES = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical",
}


@dataclass(frozen=True)
class Imported:
    """Tokenizers are missing where only the network was asked for."""

    folder: HuggingFaceFolder
    network: Transformer
    source: Rearranged
    target: Rearranged
    source_tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    generation: dict[str, Any] = field(default_factory=dict)

    def model(self) -> TextModel:
        """With its tokenizers, ready to answer and to be saved."""
        if self.source_tokenizer is None or self.target_tokenizer is None:
            raise ModelError(f"{self.folder.path} was read without its tokenizers: it has a network alone")
        return TextModel(StoredModel(self.network, self.source_tokenizer, self.target_tokenizer, self.generation))

    def unnamed_languages(self) -> list[str]:
        """The sides, source and target, whose language must still be told: before a text stands none."""
        if self.folder.kind not in SEVERAL_LANGUAGES:
            return []
        return [side for side in ("source", "target") if f"{side}_prefix" not in self.generation]


def token_id(folder: HuggingFaceFolder, name: str, default: int | None = None) -> int:
    """Of a control token. Of several ends there can be but one."""
    found = folder.setting(name, default)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ModelError(f"{folder.path}: {name} is {found!r}, where one token is needed")
    return found


def generation_from(folder: HuggingFaceFolder) -> dict[str, Any]:
    """Decoding defaults in our words. What its files leave out stays as it is with us."""
    told = {ours: folder.setting(theirs) for theirs, ours in _SAME_MEANING.items()}
    if folder.setting("do_sample"):
        told |= {"sample": True, **{ours: folder.setting(theirs) for theirs, ours in _OF_SAMPLES.items()}}
    else:
        told["beam"] = folder.setting("num_beams")
        told["stop"] = _STOPS.get(folder.setting("early_stopping", False), "settled")
    told |= _limits(folder)
    try:
        config = GenerationConfig().changed(**told)
    except UsageError as error:
        raise ModelError(f"{folder.path}: its decoding defaults cannot be meant here: {error}") from None
    return config.model_dump(mode="json", exclude_defaults=True)


def _limits(folder: HuggingFaceFolder) -> dict[str, Any]:
    """Their lengths count the token that an answer begins from, and eos."""
    limits: dict[str, Any] = {}
    for name in ("max_length", "min_length"):
        if (found := folder.setting(name)) is not None and (type(found) is not int or found < 0):
            raise ModelError(f"{folder.path}: {name} is {found!r}, where a number of tokens is needed")
    if (most := folder.setting("max_length")) is not None:
        ends = folder.setting("forced_eos_token_id") is not None
        limits |= {"max_length_factor": 0.0, "max_length_extra": max(1, most - 1 - int(ends))}
        limits["at_limit"] = "end" if ends else "free"
    if (least := folder.setting("min_length")) is not None:
        limits["min_length_extra"] = max(0, least - 1)
    return limits
