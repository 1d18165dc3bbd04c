"""Conversion of decoding defaults from and to the generation config of transformers.

Notes list the settings without a counterpart, and the behaviour instead.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.errors import MessagePart, ModelError, UsageError, cut_text, list_names, shorten
from attendo.interop.huggingface.folder import HuggingFaceFolder, JsonField
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.text import BOS, EOS, PAD, UNK

_STOP_BY_EARLY_STOPPING = {False: "settled", True: "first", "never": "exhaustive"}
_HF_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "typical_p": "typical_p"}
_HF_DEFAULT_TOP_K = 50  # default of transformers
# Settings of transformers that attendo does not support, with their neutral values.
_UNSUPPORTED: dict[str, Any] = {
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "stop_strings": None,
    "max_time": None,
    "constraints": None,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "penalty_alpha": 0,
    "dola_layers": None,
    "token_healing": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "num_return_sequences": 1,
}
_UNSUPPORTED_SAMPLING: dict[str, Any] = {"top_h": None, "epsilon_cutoff": 0, "eta_cutoff": 0, "num_beams": 1}
_MAX_VALUE_CHARS = 60  # of a value in a note
_MAX_OUTPUT_LENGTH = 512  # tokens, if attendo's limit depends on the source length
_EARLY_STOPPING_BY_STOP = {stop: early_stopping for early_stopping, stop in _STOP_BY_EARLY_STOPPING.items()}
# Settings that transformers lacks, with the message of its behaviour: in any search, and in beam search only.
_MISSING_IN_HF = {
    "min_length_factor": "hf_ignores_min_length_factor",
    "max_source": "hf_reads_any_length",
    "long_source": "hf_reads_any_length",
    "context_sentences": "hf_reads_no_context",
    "mbr": "hf_returns_best_of_one_search",
}
_MISSING_IN_HF_BEAM = {
    "beam_groups": "hf_runs_one_beam",
    "coverage_penalty": "hf_has_no_penalty",
    "word_penalty": "hf_has_no_penalty",
    "counts_eos": "hf_counts_eos",
    "patience": "hf_finishes_beam_width",
}


def import_generation(
    folder: HuggingFaceFolder,
    target: VocabularyPermutation,
    symbols: Sequence[str] | None = None,
    use_forced_bos: bool = True,
) -> tuple[dict[str, Any], list[MessagePart]]:
    """Return settings for a `GenerationConfig`, and a note for each setting that is not converted.

    Settings missing in the files keep attendo's defaults.
    forced_bos_token_id becomes `target_prefix` and must be one of `symbols`; `symbols` is None without a tokenizer.
    `use_forced_bos` is False if the caller sets the prefix itself.
    """
    sampled = folder.generation_setting("do_sample").flag()
    suppresses_unk, notes = _read_suppressed_tokens(folder, target)
    options = {
        **(_sampling_options(folder) if sampled else _beam_options(folder)),
        **_repetition_options(folder, sampled),
        **_length_options(folder),
        "length_penalty": folder.generation_setting("length_penalty").number(),
        "renormalise": folder.generation_setting("renormalize_logits").flag() or None,
        "allow_unk": False if suppresses_unk else None,
    }
    try:
        config = GenerationConfig().override(**options)
    except UsageError as error:
        raise ModelError("decoding_defaults_invalid", path=folder.path, error=error) from None
    settings = config.model_dump(mode="json", exclude_defaults=True)
    begin = folder.generation_setting("forced_bos_token_id")
    notes += [*_note_unsupported(folder, sampled), *_note_forced_eos(folder, target, config)]
    if use_forced_bos and symbols is not None:
        settings |= _find_forced_prefix(begin, target, symbols)
    elif use_forced_bos and begin.token() is not None:
        notes.append(_not_converted_note(begin, begin.value))
    return settings, notes


def exclude_prefix_from_limit(settings: dict[str, Any]) -> dict[str, Any]:
    """Subtract the prefix from a fixed limit: transformers counts the target prefix, attendo does not."""
    if "target_prefix" not in settings or settings.get("max_length_factor") != 0:
        return settings
    most = settings.get("max_length_extra", GenerationConfig().max_length_extra)
    return {**settings, "max_length_extra": max(1, most - len(settings["target_prefix"]))}


def _beam_options(folder: HuggingFaceFolder) -> dict[str, Any]:
    stop = folder.generation_setting("early_stopping").look_up(_STOP_BY_EARLY_STOPPING, "settled")
    return {"beam": folder.generation_setting("num_beams").count(), "stop": stop}


def _sampling_options(folder: HuggingFaceFolder) -> dict[str, Any]:
    top_k = folder.generation_setting("top_k").count()
    options = {ours: folder.generation_setting(theirs).number() for theirs, ours in _HF_SAMPLING.items()}
    return {"sample": True, "top_k": _HF_DEFAULT_TOP_K if top_k is None else top_k, **options}


def _repetition_options(folder: HuggingFaceFolder, sampled: bool) -> dict[str, Any]:
    """Return the repetition options. transformers penalises log-probabilities in a beam, and logits in a single row."""
    penalty = folder.generation_setting("repetition_penalty").number()
    one_row = sampled or (folder.generation_setting("num_beams").count() or 1) == 1
    return {
        "no_repeat_ngram_size": folder.generation_setting("no_repeat_ngram_size").count(),
        "repetition_penalty": penalty,
        "repetition_of": "logits" if one_row and penalty not in (None, 1) else None,
    }


def _length_options(folder: HuggingFaceFolder) -> dict[str, Any]:
    """Return the length options. transformers counts eos, and the start token except in `*_new_tokens`."""
    limits: dict[str, Any] = {}
    if (most := _read_new_tokens(folder, "max")) is not None:
        ends = folder.generation_setting("forced_eos_token_id").token() is not None
        limits |= {"max_length_factor": 0.0, "max_length_extra": max(1, most - int(ends))}
        limits["at_limit"] = "force_eos" if ends else "any"
    if (least := _read_new_tokens(folder, "min")) is not None:
        limits["min_length_extra"] = max(0, least)
    return limits


def _read_new_tokens(folder: HuggingFaceFolder, bound: str) -> int | None:
    """Return the limit in new tokens. `*_new_tokens` takes precedence over `*_length`, as in transformers."""
    new, total = (
        folder.generation_setting(f"{bound}_new_tokens").count(),
        folder.generation_setting(f"{bound}_length").count(),
    )
    return new if new is not None or total is None else total - 1


def _read_suppressed_tokens(folder: HuggingFaceFolder, target: VocabularyPermutation) -> tuple[bool, list[MessagePart]]:
    """Return whether unk is suppressed, and notes on the others. attendo always suppresses pad and bos."""
    own = {each: target.rows[each] for each in (PAD, BOS, UNK, EOS) if each not in target.copies}
    suppressed = {own[each] for each in (PAD, BOS) if each in own}
    words, tokens = folder.generation_setting("bad_words_ids"), folder.generation_setting("suppress_tokens")
    unknown = own.get(UNK) in tokens.tokens() or [own.get(UNK)] in words.sequences()
    handled = suppressed | ({own[UNK]} if unknown else set())
    others = [word for word in words.sequences() if word not in ([each] for each in (*handled, own[EOS]))]
    first = folder.generation_setting("begin_suppress_tokens")
    remaining = [
        (words, others),  # transformers ignores eos here
        (tokens, [each for each in tokens.tokens() if each not in handled]),
        (first, [each for each in first.tokens() if each not in handled]),
    ]
    return unknown, [_not_converted_note(field, rest) for field, rest in remaining if rest]


def _note_unsupported(folder: HuggingFaceFolder, sampled: bool) -> Iterator[MessagePart]:
    neutral = {**_UNSUPPORTED, **(_UNSUPPORTED_SAMPLING if sampled else {})}
    for name, nothing in neutral.items():
        field = folder.generation_setting(name)
        if field.value not in (None, nothing, [], {}):
            yield _not_converted_note(field, field.value)


def _note_forced_eos(
    folder: HuggingFaceFolder, target: VocabularyPermutation, config: GenerationConfig
) -> Iterator[MessagePart]:
    """Yield notes on eos forced at the limit. With one hypothesis its score does not matter."""
    field = folder.generation_setting("forced_eos_token_id")
    if config.at_limit != "force_eos":
        return
    if field.token() != target.rows[EOS]:
        yield _not_converted_note(field, field.value)
    elif config.beam > 1 and not config.renormalise:  # renormalising gives forced eos probability 1
        yield MessagePart("forced_eos_has_log_probability", name=field.name)


def _find_forced_prefix(field: JsonField, target: VocabularyPermutation, symbols: Sequence[str]) -> dict[str, Any]:
    """Return the forced first token as `target_prefix`. Raise an error if it is not one of `symbols`."""
    token = field.token()
    if token is None:
        return {}
    index = target.to_ours([token])[0] - EOS - 1 if token in target.rows else -1
    if not 0 <= index < len(symbols):
        raise field.make_error("needs_prefix_symbol", symbols=list_names(symbols) or "-")
    return {"target_prefix": [symbols[index]]}


def _not_converted_note(field: JsonField, value: Any) -> MessagePart:
    text = cut_text(value, _MAX_VALUE_CHARS) if isinstance(value, str) else shorten(value, _MAX_VALUE_CHARS)
    return MessagePart("setting_not_imported", name=field.name, value=text)


def export_generation(
    config: GenerationConfig, max_length: int, order: VocabularyPermutation
) -> tuple[dict[str, Any], list[MessagePart]]:
    """Return the settings of generation_config.json without control tokens, and notes on missing counterparts.

    `max_length` is the maximum output length in tokens. `order` is the permutation of the target vocabulary.
    """
    settings: dict[str, Any] = {"num_beams": 1 if config.sample else config.beam}
    if config.sample:
        settings |= {"do_sample": True, "top_k": config.top_k, "min_p": config.min_p or None}
        settings |= {theirs: getattr(config, ours) for theirs, ours in _HF_SAMPLING.items() if theirs != "min_p"}
    elif config.beam > 1:
        settings["length_penalty"] = _length_penalty(config)
        settings["early_stopping"] = _EARLY_STOPPING_BY_STOP.get(config.stop, False)
    if config.repetition_penalty != 1:
        settings["repetition_penalty"] = config.repetition_penalty
    if config.no_repeat_ngram_size:
        settings["no_repeat_ngram_size"] = config.no_repeat_ngram_size
    if config.renormalise:
        settings["renormalize_logits"] = True
    if not config.allow_unk:
        settings["bad_words_ids"] = [order.to_theirs([UNK])]
    if config.at_limit == "force_eos":
        settings["forced_eos_token_id"] = order.rows[EOS]
    return {**settings, **_length_settings(config, max_length)}, list(_missing_setting_notes(config, max_length))


def _length_penalty(config: GenerationConfig) -> float:
    return {"average": config.length_penalty, "none": 0.0}.get(config.normalise, 1.0)


def _length_settings(config: GenerationConfig, max_length: int) -> dict[str, Any]:
    """Return the lengths. transformers counts the start token and a forced eos; attendo's maximum has no prefix."""
    settings: dict[str, Any] = {}
    most, prefix_length = _MAX_OUTPUT_LENGTH, 1 + len(config.target_prefix)
    if config.max_length_factor == 0:
        most = prefix_length + config.max_length_extra + int(config.at_limit == "force_eos")
    settings["max_length"] = min(most, max_length)
    if config.min_length_extra:
        settings["min_length"] = 1 + config.min_length_extra
    return settings


def _missing_setting_notes(config: GenerationConfig, max_length: int) -> Iterator[MessagePart]:
    default, is_beam = GenerationConfig(), config.beam > 1 and not config.sample
    for name, code in {**_MISSING_IN_HF, **(_MISSING_IN_HF_BEAM if is_beam else {})}.items():
        if getattr(config, name) != getattr(default, name):
            yield _missing_setting_note(config, name, code)
    if config.max_length_factor:
        limit = _length_settings(config, max_length)["max_length"] - 1
        yield _missing_setting_note(config, "max_length_factor", "hf_has_fixed_max_length", limit=limit)
    if config.sample:
        yield _missing_setting_note(config, "seed", "hf_samples_with_torch")
    if is_beam:
        yield from _beam_notes(config)
    penalised = "log_probabilities" if is_beam else "logits"
    if config.repetition_penalty != 1 and config.repetition_of != penalised:
        yield _missing_setting_note(config, "repetition_of", "hf_penalises", values=penalised)


def _beam_notes(config: GenerationConfig) -> Iterator[MessagePart]:
    if config.normalise not in ("average", "none"):
        yield _missing_setting_note(config, "normalise", "hf_ranks_by_average")
    if config.stop not in _EARLY_STOPPING_BY_STOP:
        yield _missing_setting_note(config, "stop", "hf_stops_as_settled")
    if config.max_length_factor == 0 and config.at_limit == "truncate":
        yield _missing_setting_note(config, "at_limit", "hf_ranks_truncated_outputs")
    if config.at_limit == "force_eos":
        yield _missing_setting_note(config, "at_limit", "hf_forces_eos_at_no_cost")


def _missing_setting_note(config: GenerationConfig, name: str, code: str, **values: object) -> MessagePart:
    """Return the note. `code` is the message of what transformers does instead."""
    instead = MessagePart(code, **values)
    return MessagePart("setting_not_exported", name=name, value=getattr(config, name), instead=instead)
