"""Conversion of a strategy and its rules to CTranslate2 options, and checks for unsupported settings."""

from collections.abc import Iterator, Mapping, Sequence
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
from attendo.text import BOS, CONTROL_PIECES
from attendo.text_model import GenerateOptions
from attendo.text_model.backends import NATIVE_ENGINES, NATIVE_SEARCH_ENGINES, make_option_error
from attendo.text_model.generation import make_rules, make_strategy
from attendo.text_model.options import num_candidates

_KNOWN_RULES = (BannedPhrases, ForcedPrefix, MinLength, NoRepeatNgram, Renormalise, SuppressTokens, UnscoredPrefix)
# Engines that support the options CTranslate2 lacks. All other engines support options not listed here.
_OTHER_ENGINES = ("onnx", *NATIVE_ENGINES)
_COVERAGE_ENGINES = ("cached", "fast")

# Unsupported options, each with the engines that support it. An option is its name and value, without words, because
# it is part of the message in every language.
UnsupportedOptions = Mapping[str, Sequence[str]]


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
    refuse(_list_unsupported_search(strategy, rules))
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
        "constraints": (bool(options.constraints), NATIVE_SEARCH_ENGINES),
        "glossary": (options.glossary is not None, NATIVE_SEARCH_ENGINES),
        "alignments": (options.alignments, NATIVE_ENGINES),
        "replace_unknown": (options.replace_unknown, NATIVE_ENGINES),
        "transfer_case": (options.transfer_case, NATIVE_ENGINES),
        f"coverage_penalty {config.coverage_penalty}": (config.coverage_penalty > 0, _COVERAGE_ENGINES),
        "compile": (config.compile, ("fast",)),
        "source_prefix <s>": (CONTROL_PIECES[BOS] in config.source_prefix, _OTHER_ENGINES),
        "source_suffix": (bool(config.source_suffix), _OTHER_ENGINES),  # the folder sets add_source_eos
        f"precision {config.precision}": (config.precision != "auto", NATIVE_ENGINES),
    }
    refuse({name: engines for name, (given, engines) in requested.items() if given})
    refuse(_list_unsupported_search(make_strategy(config, num_candidates(options, config)), make_rules(config)))


def apply_ctranslate2_semantics(config: GenerationConfig, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings with CTranslate2's search semantics. The caller then applies `options` on top.

    Beam search follows `preset="ctranslate2"`. Greedy search is attendo's, but never forces eos at the limit.
    """
    combined = config.override(**{name: options[name] for name in options if name in GenerationConfig.model_fields})
    if combined.sample or combined.beam_groups > 1 or options.get("constraints") or options.get("glossary"):
        return config  # unsupported: rejected later
    if combined.beam == 1 and combined.repetition_penalty == 1:
        forced = combined.at_limit == "force_eos" or combined.renormalise
        return config.override(at_limit="any") if forced else config
    penalised = combined.normalise == "average" and combined.length_penalty != 0
    return config.override(
        stop="first" if penalised else "leader", at_limit="any", renormalise=True, repetition_of="logits"
    )


def refuse(unsupported: UnsupportedOptions) -> None:
    """Raise a `UsageError` that lists the unsupported options and the engines that support each."""
    if unsupported:
        raise make_option_error("ctranslate2", unsupported)


def _list_unsupported_search(strategy: Strategy, rules: Sequence[Rule]) -> UnsupportedOptions:
    match strategy:
        case Beam():
            found = _list_unsupported_beam(strategy, rules)
        case Greedy():
            renormalised = _has(rules, Renormalise)
            conditions = {
                "repetition_penalty + renormalise false": renormalised or not _has(rules, RepetitionPenalty),
                "renormalise + at_limit truncate/force_eos": strategy.free_end or not renormalised,
            }
            found = {option: _OTHER_ENGINES for option, is_met in conditions.items() if not is_met}
        case Sampling():
            found = {"sample": _OTHER_ENGINES}  # CTranslate2's samples do not depend on a seed
        case DiverseBeam():
            found = {"beam_groups": _OTHER_ENGINES}
        case ConstrainedBeam():
            found = {"constraints": NATIVE_SEARCH_ENGINES}
        case _:
            found = {f"strategy {type(strategy).__name__}": _OTHER_ENGINES}
    return {**found, **dict.fromkeys(_list_unsupported_rules(rules), _OTHER_ENGINES)}


def _list_unsupported_beam(beam: Beam, rules: Sequence[Rule]) -> dict[str, Sequence[str]]:
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
        # CTranslate2 rounds the product, attendo does not always round it the same way.
        f"patience {beam.patience} + beam {beam.width}": round(beam.width * beam.patience) == beam.max_finished,
    }
    found: dict[str, Sequence[str]] = {option: _OTHER_ENGINES for option, is_met in conditions.items() if not is_met}
    if ranking.coverage_penalty:
        found[f"coverage_penalty {ranking.coverage_penalty}"] = _COVERAGE_ENGINES
    return found


def _list_unsupported_rules(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        if isinstance(rule, RepetitionPenalty):
            if not rule.applies_to_logits:
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
