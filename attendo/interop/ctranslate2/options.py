"""Conversion of a strategy and its rules to CTranslate2 options, and checks for unsupported settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.rules import (
    BannedPhrases,
    ForcedPrefix,
    ForceEosAtLimit,
    MinLength,
    NoRepeatNgram,
    Renormalise,
    RepetitionPenalty,
    SuppressTokens,
    UnscoredPrefix,
)
from attendo.decode.search import Rule, Strategy
from attendo.decode.strategies import Greedy, Sampling
from attendo.text_model import GenerateOptions
from attendo.text_model.backends import NATIVE_ENGINES, NATIVE_SEARCH_ENGINES, make_option_error
from attendo.text_model.generation import make_rules, make_strategy
from attendo.text_model.options import num_candidates

_KNOWN_RULES = (
    *(
        BannedPhrases,
        ForceEosAtLimit,
        SuppressTokens,
        UnscoredPrefix,
        MinLength,
        NoRepeatNgram,
        ForcedPrefix,
        Renormalise,
        RepetitionPenalty,
    ),
)

# Engines that support the options CTranslate2 lacks. All other engines support options not listed here.
_ENGINES = {
    "constraints": NATIVE_SEARCH_ENGINES,
    "alignments": NATIVE_ENGINES,
    "coverage_penalty": ("cached", "fast"),
    "compile": ("fast",),
    "precision": NATIVE_ENGINES,
}


@dataclass(frozen=True)
class CTranslate2Options:
    """Search options of `translate_batch`, without the lengths."""

    settings: dict[str, Any]
    length_penalty: float
    free_end: bool
    renormalised: bool  # probabilities are renormalised after tokens are suppressed
    has_min_length: bool
    unscored_tokens: int  # number of first tokens of every output that do not count in the score


def make_options(strategy: Strategy, rules: Sequence[Rule], names: Sequence[str]) -> CTranslate2Options:
    """Return the options; `names` are the target token names. A `UsageError` lists all unsupported settings."""
    refuse([*_unsupported_in_strategy(strategy, rules), *_unsupported_in_rules(rules)])
    assert isinstance(strategy, Greedy | Beam)  # `refuse` rejects all others
    settings: dict[str, Any] = {
        "beam_size": strategy.width,
        "suppress_sequences": _suppress_sequences(rules, names) or None,
    }
    for rule in rules:
        if isinstance(rule, NoRepeatNgram):
            settings["no_repeat_ngram_size"] = rule.size
        elif isinstance(rule, RepetitionPenalty):
            settings["repetition_penalty"] = rule.penalty
    hypotheses, length_penalty = 1, 0.0
    if isinstance(strategy, Beam):
        length_penalty = strategy.ranking.length_penalty if strategy.ranking.normalise == "average" else 0.0
        hypotheses = min(strategy.width, strategy.num_hypotheses) if strategy.stop == "leader" else strategy.width
        settings["patience"] = strategy.patience
    return CTranslate2Options(
        settings={**settings, "length_penalty": length_penalty, "num_hypotheses": hypotheses},
        length_penalty=length_penalty,
        free_end=strategy.free_end,
        renormalised=_has(rules, Renormalise),
        has_min_length=_has(rules, MinLength),
        unscored_tokens=max((rule.tokens for rule in rules if isinstance(rule, UnscoredPrefix)), default=0),
    )


def check_ctranslate2_options(options: GenerateOptions, config: GenerationConfig) -> None:
    """Raise a `UsageError` if CTranslate2 does not support the options of a call."""
    requested = {
        "constraints": bool(options.constraints),
        "alignments": options.alignments,
        f"coverage_penalty {config.coverage_penalty}": config.coverage_penalty > 0,
        "compile": config.compile,
        f"precision {config.precision}": config.precision != "auto",
    }
    refuse([name for name, given in requested.items() if given])
    strategy = make_strategy(config, num_candidates(options, config))
    refuse([*_unsupported_in_strategy(strategy, make_rules(config)), *_unsupported_in_rules(make_rules(config))])


def apply_ctranslate2_semantics(config: GenerationConfig, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings with CTranslate2's search semantics. The caller then applies `options` on top.

    Beam search follows `preset="ctranslate2"`. Greedy search is attendo's, but never forces eos at the limit.
    """
    combined = config.override(**{name: options[name] for name in options if name in GenerationConfig.model_fields})
    if combined.sample or combined.beam_groups > 1 or options.get("constraints"):
        return config  # unsupported: rejected later
    if combined.beam == 1 and combined.repetition_penalty == 1:
        forced = combined.at_limit == "force_eos" or combined.renormalise
        return config.override(at_limit="any") if forced else config
    penalised = combined.normalise == "average" and combined.length_penalty != 0
    return config.override(
        stop="first" if penalised else "leader", at_limit="any", renormalise=True, repetition_of="logits"
    )


def refuse(options: Iterable[str]) -> None:
    """Raise a `UsageError` that lists the unsupported options and the engines that support each.

    An option is its name and value, without words, because it is part of the message in every language.
    """
    unsupported = {option: _ENGINES.get(option.split(" ")[0], ("onnx", *NATIVE_ENGINES)) for option in options}
    if unsupported:
        raise make_option_error("ctranslate2", unsupported)


def _unsupported_in_strategy(strategy: Strategy, rules: Sequence[Rule]) -> Iterator[str]:
    match strategy:
        case Beam():
            yield from _unsupported_in_beam(strategy, rules)
        case Greedy():
            if _has(rules, RepetitionPenalty) and not _has(rules, Renormalise):
                yield "repetition_penalty + renormalise false"
            if _has(rules, Renormalise) and not strategy.free_end:
                yield "renormalise + at_limit truncate/force_eos"
        case Sampling():
            yield "sample"  # its samples do not depend on a seed
        case DiverseBeam():
            yield "beam_groups"
        case ConstrainedBeam():
            yield "constraints"
        case _:
            yield f"strategy {type(strategy).__name__}"


def _unsupported_in_beam(beam: Beam, rules: Sequence[Rule]) -> Iterator[str]:
    ranking = beam.ranking
    has_penalty = ranking.normalise == "average" and ranking.length_penalty != 0
    stop = "first" if has_penalty else "leader"
    conditions = {
        f"stop {beam.stop} (CTranslate2: {stop})": beam.stop == stop,
        "at_limit truncate/force_eos": beam.free_end,
        "renormalise false": _has(rules, Renormalise),
        f"normalise {ranking.normalise}": ranking.normalise in ("average", "none"),
        f"word_penalty {ranking.word_penalty}": ranking.word_penalty == 0,
        "counts_eos false": ranking.counts_eos or not has_penalty,
        f"coverage_penalty {ranking.coverage_penalty}": ranking.coverage_penalty == 0,
        # CTranslate2 rounds the product, attendo does not always round it the same way.
        f"patience {beam.patience} + beam {beam.width}": round(beam.width * beam.patience) == beam.max_finished,
    }
    yield from (reason for reason, is_met in conditions.items() if not is_met)


def _unsupported_in_rules(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        if isinstance(rule, RepetitionPenalty) and not rule.applies_to_logits:
            yield "repetition_of log_probabilities"
        elif isinstance(rule, ForceEosAtLimit):
            yield "at_limit force_eos"
        elif not isinstance(rule, _KNOWN_RULES):
            yield f"rule {type(rule).__name__}"


def _suppress_sequences(rules: Sequence[Rule], names: Sequence[str]) -> list[list[str]]:
    phrases: list[Sequence[int]] = []
    for rule in rules:
        if isinstance(rule, SuppressTokens):
            phrases += [(each,) for each in rule.ids]
        elif isinstance(rule, BannedPhrases):
            phrases += rule.phrases
    return [[names[each] for each in phrase] for phrase in phrases]


def _has(rules: Sequence[Rule], rule_class: type) -> bool:
    return any(isinstance(rule, rule_class) for rule in rules)
