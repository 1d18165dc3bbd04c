"""Pipeline tasks, and conversion of transformers options to attendo options."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.decode.options import RENAMED_OPTIONS, RENAMED_VALUES
from attendo.errors import UsageError
from attendo.settings import rename_settings, suggest_name
from attendo.text_model import GenerateOptions, TextModel

HF_OPTION_NAMES = {
    "num_beams": "beam",
    "num_beam_groups": "beam_groups",
    "num_return_sequences": "n_best",
    "do_sample": "sample",
    "renormalize_logits": "renormalise",
    "early_stopping": "stop",
}
# These two count new tokens. attendo's options count all output tokens, including a forced prefix.
NEW_TOKEN_OPTIONS = {"max_new_tokens": "max_length", "min_new_tokens": "min_length"}
_STOP_RULES = {True: "first", False: "settled", "never": "exhaustive"}
_INTEGER_OPTIONS = ("n_best", "max_length", "min_length", *NEW_TOKEN_OPTIONS)
_NATIVE_OPTIONS = {*(field.name for field in fields(GenerateOptions)), *GenerationConfig.model_fields}
_NATIVE_OPTIONS -= {"alignments", "check", "check_detached"}
# Values of unsupported options that match attendo's behaviour.
_NEUTRAL_VALUES: dict[str, Collection[Any]] = {
    "return_tensors": (False,),
    "return_text": (True,),
    "clean_up_tokenization_spaces": (False,),
    "truncation": (False, "do_not_truncate"),
    "skip_special_tokens": (True,),
    "use_cache": (True,),
}
_NOT_NEEDED = "a model folder contains everything that it needs: leave it out"
_USE_TEXT_MODEL = "a pipeline returns only texts: use TextModel.generate"
_REMEDIES = {
    "return_tensors": f"{_USE_TEXT_MODEL}, whose results have ids",
    "return_text": "a pipeline always returns texts: leave it out",
    "clean_up_tokenization_spaces": "texts are returned as the tokenizer decodes them: leave it out",
    "truncation": "texts are never truncated silently: shorten the text, or use split=True",
    "skip_special_tokens": f"{_USE_TEXT_MODEL}, whose results have pieces",
    "use_cache": "all engines return the same answers: use engine='textbook'",
    "return_full_text": "it applies only to text-generation: leave it out",
    "src_lang": "it applies only to translation: leave it out",
    "tgt_lang": "it applies only to translation: leave it out",
    "alignments": _USE_TEXT_MODEL,
    "check": f"{_USE_TEXT_MODEL}, whose results have faults",
    "check_detached": f"{_USE_TEXT_MODEL}, whose results have faults",
    "output_attentions": "use TextModel.trace",
    "output_scores": f"{_USE_TEXT_MODEL}, whose results have scores",
    "return_dict_in_generate": _USE_TEXT_MODEL,
    "generation_config": "give its settings one by one",
    "generate_kwargs": "give its settings one by one",
    "streamer": "use TextModel.stream",
    "stop_strings": "stop strings are not supported: cut the returned text",
    "stop_sequence": "stop strings are not supported: cut the returned text",
    "bad_words_ids": "use banned_phrases=[...] with texts",
    "force_words_ids": "use constraints=[...] with texts",
    "forced_bos_token_id": "use target_prefix=[...] with symbols",
    "handle_long_generation": "texts are never truncated silently: shorten the text",
    "tokenizer": _NOT_NEEDED,
    "config": _NOT_NEEDED,
    "framework": _NOT_NEEDED,
    "revision": _NOT_NEEDED,
    "token": _NOT_NEEDED,
    "use_fast": _NOT_NEEDED,
    "trust_remote_code": _NOT_NEEDED,
    "model_kwargs": _NOT_NEEDED,
    "device_map": "use device",
    "dtype": "use precision='fp16' or 'bf16'",
    "torch_dtype": "use precision='fp16' or 'bf16'",
}


@dataclass(frozen=True)
class PipelineTask:
    name: str
    key: str  # result field of the output
    model_task: str | None  # task in about.json; None accepts any model
    languages: tuple[str, str] | None = None

    @property
    def continues(self) -> bool:
        """Return whether the task continues its input."""
        return self.name == "text-generation"

    @property
    def reads_full_text(self) -> bool:
        """Return whether texts are not split into sentences by default."""
        return self.name in ("summarization", "conversational")

    @property
    def takes_messages(self) -> bool:
        return self.name == "conversational"


TASKS = {
    each.name: each
    for each in (
        PipelineTask("translation", "translation_text", "translation"),
        PipelineTask("summarization", "summary_text", "summarization"),
        PipelineTask("text2text-generation", "generated_text", None),
        PipelineTask("text-generation", "generated_text", "generation"),
        PipelineTask("conversational", "generated_text", "conversation"),
    )
}
_TRANSLATION_PAIR = re.compile(r"translation_([A-Za-z-]+)_to_([A-Za-z-]+)")


def parse_task(name: str) -> PipelineTask:
    """Return the task with this name. `translation_en_to_de` also sets the languages."""
    if not isinstance(name, str):
        raise UsageError("task_not_string", task=name, tasks=", ".join(TASKS))
    if pair := _TRANSLATION_PAIR.fullmatch(name):
        return PipelineTask(name, "translation_text", "translation", (pair[1], pair[2]))
    if name not in TASKS:
        raise UsageError("unknown_task", task=name, suggestion=suggest_name(name, list(TASKS)), tasks=", ".join(TASKS))
    return TASKS[name]


def check_model(task: PipelineTask, model: TextModel) -> None:
    """Raise `UsageError` if the model is for another task or other languages."""
    if task.continues and not model.continues_text:
        raise UsageError("task_needs_decoder_only", task=task.name)
    if model.continues_text and not task.continues:
        raise UsageError("task_needs_encoder", task=task.name)
    own = model.about.get("task")
    if task.model_task is not None and own is not None and own != task.model_task:
        alternative = next(name for name, each in TASKS.items() if each.model_task == own)
        raise UsageError("task_not_of_model", model_task=own, task=task.name, alternative=alternative)
    for side, language in zip(("source", "target"), task.languages or (), strict=False):
        if f"{side}_language" in model.about:
            _check_language(f"the {side} of {task.name}", language, model.about[f"{side}_language"])


def check_languages(given: Mapping[str, Any], model: TextModel) -> None:
    """Raise `UsageError` if src_lang or tgt_lang is not the model's language."""
    for name, side in (("src_lang", "source"), ("tgt_lang", "target")):
        language, own = given.get(name), model.about.get(f"{side}_language")
        if language is not None and own is None:
            raise UsageError("model_language_unknown", option=name, value=language, side=side)
        if language is not None:
            _check_language(name, str(language), str(own))


def _check_language(subject: str, requested: str, model_language: str) -> None:
    """Compare the first subtag only: en matches en_XX and en-GB."""
    if re.split("[-_]", requested)[0].lower() != model_language.split("-")[0]:
        raise UsageError("language_not_of_model", subject=subject, requested=requested, own=model_language)


def from_hf_options(given: Mapping[str, Any], task: PipelineTask) -> dict[str, Any]:
    """Convert options to the names of `TextModel.generate`. None values are dropped.

    `max_new_tokens`, `min_new_tokens` and the pipeline's own options keep their names.
    """
    found: dict[str, Any] = {}
    for name, value in rename_settings(given, RENAMED_OPTIONS, RENAMED_VALUES, warn=True).items():
        name_here = HF_OPTION_NAMES.get(name, name)
        if name_here not in _list_option_names(task):
            _check_neutral(name, value)
        elif value is not None:
            if name_here in found:
                raise UsageError("option_alias_given_twice", option=name, name=name_here)
            found[name_here] = _convert_value(name, name_here, value)
    for name in ("min_length", "min_new_tokens"):
        if found.get(name) == 0:  # the default of transformers
            del found[name]
    for new, total in NEW_TOKEN_OPTIONS.items():
        if new in found and total in found:
            raise UsageError("new_tokens_with_length", option=new, other=total)
    return found


def merge_options(defaults: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options. A call overrides the defaults, also under an alias such as max_new_tokens for max_length."""
    overridden = {*call, *(NEW_TOKEN_OPTIONS.get(name) for name in call)}
    overridden |= {new for new, total in NEW_TOKEN_OPTIONS.items() if total in call}
    return {**{name: value for name, value in defaults.items() if name not in overridden}, **call}


def to_hf_names(error: UsageError, given: Mapping[str, Any]) -> UsageError:
    """Add to the error the attendo name of each transformers option that was given."""
    names = {**HF_OPTION_NAMES, **NEW_TOKEN_OPTIONS}
    same = [f"{name} = {names[name]}" for name in given if name in names]
    return UsageError("aliased_option_invalid", error=error, aliases=", ".join(same)) if same else error


def _list_option_names(task: PipelineTask) -> set[str]:
    special = {"return_full_text"} if task.continues else set()
    languages = {"src_lang", "tgt_lang"} if task.model_task == "translation" else set()
    return _NATIVE_OPTIONS | NEW_TOKEN_OPTIONS.keys() | special | languages


def _check_neutral(name: str, value: Any) -> None:
    if name not in _REMEDIES:
        known = [*_NATIVE_OPTIONS, *HF_OPTION_NAMES, *_REMEDIES]
        raise UsageError("unknown_pipeline_option", option=name, suggestion=suggest_name(name, known))
    if value is not None and not any(
        type(value) is type(each) and value == each for each in _NEUTRAL_VALUES.get(name, ())
    ):
        raise UsageError("unsupported_pipeline_option", option=name, value=value, remedy=_REMEDIES[name])


def _convert_value(name: str, native_name: str, value: Any) -> Any:
    if name == "early_stopping":
        if not isinstance(value, bool | str) or value not in _STOP_RULES:
            raise UsageError("invalid_early_stopping", value=value)
        return _STOP_RULES[value]
    if native_name in _INTEGER_OPTIONS and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError("pipeline_option_not_integer", option=name, value=value)
    return value
