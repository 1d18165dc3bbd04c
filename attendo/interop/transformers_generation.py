"""Our decoding defaults as those of transformers, the way back from `imported.generation_from`; what has no counterpart
there is told, with what happens instead.
"""

from collections.abc import Iterator
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.interop.rearranged import Rearranged
from attendo.text import EOS, UNK

_LONGEST_ANSWER = 512  # tokens, where ours follow the length of the source
_STOPS: dict[str, bool | str] = {"settled": False, "first": True, "exhaustive": "never"}
_OF_SAMPLES = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "typical": "typical_p"}
_AS_WRITTEN = "they are compared by log p / |y| ** length_penalty, with a length_penalty of 1"

# Settings that it does not have, and what it does: in any search, and with a beam alone.
_ABSENT = {
    "min_length_factor": "only min_length_extra counts",
    "max_source": "a source of any length is read",
    "long_source": "a source of any length is read",
    "mbr": "the answer is the best of one search",
}
_ABSENT_WITH_A_BEAM = {
    "groups": "it is one plain beam",
    "coverage_penalty": "it has none",
    "word_penalty": "it has none",
    "counts_eos": "the end counts as a token",
    "patience": "as many as the beam is wide must be finished",
}


def transformers_settings(
    config: GenerationConfig, longest: int, order: Rearranged
) -> tuple[dict[str, Any], list[str]]:
    """Of a generation_config.json, control tokens aside, for answers of at most `longest` tokens; and the notes.

    `order` is that of the target's vocabulary there.
    """
    told: dict[str, Any] = {"num_beams": 1 if config.sample else config.beam}
    if config.sample:
        told |= {"do_sample": True, **{theirs: getattr(config, ours) for ours, theirs in _OF_SAMPLES.items()}}
        told["min_p"] = config.min_p or None
    elif config.beam > 1:
        told["length_penalty"] = _length_penalty(config)
        told["early_stopping"] = _STOPS.get(config.stop, False)
    if config.repetition_penalty != 1:
        told["repetition_penalty"] = config.repetition_penalty
    if config.no_repeat_ngram:
        told["no_repeat_ngram_size"] = config.no_repeat_ngram
    if config.renormalise:
        told["renormalize_logits"] = True
    if not config.allow_unk:
        told["bad_words_ids"] = [order.theirs([UNK])]
    if config.at_limit == "end":
        told["forced_eos_token_id"] = order.rows[EOS]
    return {**told, **_lengths(config, longest)}, list(_notes(config, longest))


def _length_penalty(config: GenerationConfig) -> float:
    return {"average": config.length_penalty, "none": 0.0}.get(config.normalise, 1.0)


def _lengths(config: GenerationConfig, longest: int) -> dict[str, Any]:
    """Theirs count the token that an answer begins from, and the eos that is forced. Our most leaves out the prefix."""
    told: dict[str, Any] = {}
    most, begun = _LONGEST_ANSWER, 1 + len(config.target_prefix)
    if config.max_length_factor == 0:
        most = begun + config.max_length_extra + int(config.at_limit == "end")
    told["max_length"] = min(most, longest)
    if config.min_length_extra:
        told["min_length"] = 1 + config.min_length_extra
    return told


def _notes(config: GenerationConfig, longest: int) -> Iterator[str]:
    default, is_beam = GenerationConfig(), config.beam > 1 and not config.sample
    for name, instead in {**_ABSENT, **(_ABSENT_WITH_A_BEAM if is_beam else {})}.items():
        if (value := getattr(config, name)) != getattr(default, name):
            yield _note(name, value, instead)
    if config.max_length_factor:
        limit = _lengths(config, longest)["max_length"] - 1
        instead = f"an answer has at most {limit} tokens, whatever the source (max_length)"
        yield _note("max_length_factor", config.max_length_factor, instead)
    if config.sample:
        yield _note("seed", config.seed, "what is drawn follows from torch.manual_seed")
    if is_beam:
        yield from _notes_of_a_beam(config)
    penalised = "log_probabilities" if is_beam else "logits"
    if config.repetition_penalty != 1 and config.repetition_of != penalised:
        yield _note("repetition_of", config.repetition_of, f"the penalty multiplies {penalised.replace('_', '-')}")


def _notes_of_a_beam(config: GenerationConfig) -> Iterator[str]:
    if config.normalise not in ("average", "none"):
        yield _note("normalise", config.normalise, _AS_WRITTEN)
    if config.stop not in _STOPS:
        yield _note("stop", config.stop, "a beam stops as by settled (early_stopping=False)")
    if config.max_length_factor == 0 and config.at_limit == "cut":
        yield _note("at_limit", "cut", "an answer at its limit ranks as it is, with those that ended")
    if config.at_limit == "end":
        yield _note("at_limit", "end", "the end that is forced costs nothing")


def _note(name: str, value: Any, instead: str) -> str:
    return f"transformers has no counterpart for {name} {value}: {instead}"
