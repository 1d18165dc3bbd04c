"""Per-call generation options, checks that they are compatible, and errors about single texts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from attendo.decode.config import MAX_FINISHED, MAX_TOKENS, GenerationConfig
from attendo.decode.presets import preset
from attendo.errors import MessagePart, ModelError, UsageError
from attendo.settings import suggest_name
from attendo.text_model.constraints import contains, validate_phrases

_SAMPLING_OPTIONS = ("seed", "temperature", "top_k", "top_p", "min_p", "typical")
_BEAM_OPTIONS = ("stop", "patience", "groups", "diversity")


@dataclass(frozen=True)
class GenerateOptions:
    """Options of one call. A list applies to all texts, or has one item per text."""

    n_best: int = 1  # hypotheses per result
    max_length: int | None = None  # maximum output tokens; by default it depends on the length of the source
    min_length: int | None = None  # minimum output tokens
    prefix: str | Sequence[str] = ""  # forced start of the output
    constraints: Sequence[str] | Sequence[Sequence[str]] = ()  # phrases that the output must contain
    ban: Sequence[str] = ()  # words or phrases that the output must not contain
    split: bool | None = None  # generate sentence by sentence; None: if trained on single sentences
    alignments: bool = False  # return cross-attention alignments
    distinct: bool | None = None  # no duplicate texts; None: True unless sampling or `like` is used

    def __post_init__(self) -> None:
        for name in ("max_length", "min_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("length_below_one", option=name, value=value)
            if value is not None and value > MAX_TOKENS:
                raise UsageError("length_exceeds_token_limit", option=name, limit=MAX_TOKENS, value=value)
        if self.min_length and self.max_length and self.min_length > self.max_length:
            raise UsageError("min_length_exceeds_maximum", min_length=self.min_length, max_length=self.max_length)
        object.__setattr__(self, "ban", validate_phrases(self.ban, "ban"))
        if self.split and self.constraints:
            raise UsageError("constraints_split_conflict")

    def expand_prefixes(self, num_texts: int) -> list[str]:
        """Return one prefix per text."""
        if isinstance(self.prefix, str):
            return [self.prefix] * num_texts
        if len(self.prefix) != num_texts:
            raise UsageError("prefix_count_mismatch", prefixes=len(self.prefix), texts=num_texts)
        return list(self.prefix)

    def expand_constraints(self, num_texts: int) -> list[tuple[str, ...]]:
        """Return the required phrases of each text."""
        given = self.constraints
        if isinstance(given, str) or all(isinstance(each, str) for each in given):
            return [validate_phrases(given, "constraints")] * num_texts  # type: ignore[arg-type]
        if len(given) != num_texts:
            raise UsageError("constraints_count_mismatch", lists=len(given), texts=num_texts)
        return [validate_phrases(each, "constraints") for each in given]

    def check_banned_phrases(self, prefix: str, phrases: Sequence[str]) -> None:
        for banned in self.ban:
            if contains(prefix, banned):
                raise UsageError("prefix_contains_banned_phrase", prefix=prefix, banned=banned)
            for phrase in phrases:
                if contains(phrase, banned):
                    raise UsageError("constraint_contains_banned_phrase", phrase=phrase, banned=banned)


def split_options(defaults: GenerationConfig, options: Mapping[str, Any]) -> tuple[GenerateOptions, GenerationConfig]:
    """Split the options of a call into `GenerateOptions` and the updated settings. None counts as not given.

    With `like` the settings are those of another system instead of the defaults.
    """
    given = {name: value for name, value in options.items() if value is not None}
    system = given.pop("like", None)
    names = {field.name for field in fields(GenerateOptions)}
    settings = {name: value for name, value in given.items() if name not in names}
    for name in settings:
        if name not in GenerationConfig.model_fields:
            raise UsageError(
                "unknown_generation_option",
                option=name,
                suggestion=suggest_name(name, [*names, "like", *GenerationConfig.model_fields]),
            )
    wishes = GenerateOptions(**{name: value for name, value in given.items() if name in names})
    config = defaults.override(**settings) if system is None else preset(system, settings, defaults)
    config = _check_config(config, settings)
    if wishes.distinct is None:
        wishes = replace(wishes, distinct=system is None and not config.sample)
    _check_n_best(wishes, config)
    _check_lengths(wishes, settings)
    if wishes.constraints and config.sample:
        raise UsageError("constraints_sample_conflict")
    if wishes.constraints and config.groups > 1:
        raise UsageError("constraints_groups_conflict", groups=config.groups)
    if wishes.constraints:
        _require_plain_beam(config, "constraints")
    return wishes, config


def check_text_list(texts: Sequence[str]) -> None:
    """Reject a bare string and lists with non-string items."""
    if isinstance(texts, str):
        raise UsageError("texts_not_list")
    if other := [each for each in texts if not isinstance(each, str)]:
        raise UsageError("text_not_string", item=other[0])


def num_candidates(options: GenerateOptions, config: GenerationConfig) -> int:
    """Return the number of hypotheses that the search must find."""
    if config.mbr == "none":
        return options.n_best
    return config.mbr_candidates if config.sample else config.beam


def _check_config(config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Reject a given option that would have no effect."""
    if config.sample and given.get("beam", 1) > 1:
        raise UsageError("sample_beam_conflict")
    if config.mbr != "none" and config.beam == 1:
        config = config.override(sample=True)
    if config.mbr != "none" and not config.sample and "mbr_candidates" in given:
        raise UsageError("mbr_candidates_beam_conflict", beam=config.beam)
    if config.mbr == "none" and "mbr_candidates" in given:
        raise UsageError("mbr_candidates_without_mbr")
    if "repetition_of" in given and config.repetition_penalty == 1:
        raise UsageError("repetition_of_without_penalty")
    if config.normalise == "none" and given.get("length_penalty", 1) not in (0, 1):  # 0 and 1 have no effect
        raise UsageError("length_penalty_normalise_conflict", length_penalty=given["length_penalty"])
    for name in _SAMPLING_OPTIONS:
        if name in given and not config.sample:
            raise UsageError("sampling_option_without_sample", option=name)
    for name in _BEAM_OPTIONS:
        if name in given and (config.sample or config.beam == 1) and given[name] != _neutral_value(name):
            raise UsageError("beam_option_without_beam", option=name)
    if "diversity" in given and config.groups == 1:
        raise UsageError("diversity_without_groups")
    if "patience" in given and config.stop != "first":
        raise UsageError("patience_stop_conflict", stop=config.stop)
    if config.groups > 1 and config.patience != 1:
        raise UsageError("groups_patience_conflict", groups=config.groups, patience=config.patience)
    if config.groups > 1:
        _require_plain_beam(config, f"groups ({config.groups})")
    return config


def _check_lengths(options: GenerateOptions, given: Mapping[str, Any]) -> None:
    """Reject length factors and extras if the same limit is given in tokens."""
    for side in ("max", "min"):
        number = getattr(options, f"{side}_length")
        for name in (f"{side}_length_factor", f"{side}_length_extra"):
            if number is not None and name in given:
                raise UsageError("length_option_conflict", side=side, option=name, length=number)
    if options.max_length is not None and given.get("min_length_factor"):
        raise UsageError("min_length_factor_conflict")
    if options.max_length is not None and (least := given.get("min_length_extra", 0)) > options.max_length:
        raise UsageError("min_length_extra_exceeds_maximum", min_length_extra=least, max_length=options.max_length)


def _require_plain_beam(config: GenerationConfig, option: str) -> None:
    """Reject stopping rules that only a plain beam supports."""
    if config.at_limit == "free":
        raise UsageError("at_limit_free_conflict", option=option)
    if config.stop in ("leader", "shrinking"):
        raise UsageError("stop_rule_conflict", option=option, stop=config.stop)


def _neutral_value(name: str) -> Any:
    """Return the value that has no effect and is allowed with any search."""
    return 1 if name == "groups" else None


def _check_n_best(options: GenerateOptions, config: GenerationConfig) -> None:
    if config.sample:
        most, name = (MAX_FINISHED, "samples") if config.mbr == "none" else (config.mbr_candidates, "mbr_candidates")
    else:
        most, name = config.beam, "beam"
    if not 1 <= options.n_best <= most:
        raise UsageError("n_best_out_of_range", option=name, limit=most, n_best=options.n_best)


class TooLongError(UsageError):
    """A text exceeds the length limit of the model."""

    def __init__(self, code: str, /, number: int = 0, **values: object) -> None:
        super().__init__(code, **values)
        self.number = number


class NotANumberError(ModelError):
    """A log-probability is NaN."""

    def __init__(self, code: str, /, precision: str = "fp32", number: int = 0, **values: object) -> None:
        super().__init__(code, precision=precision, **values)
        self.precision, self.number = precision, number


def has_nan(log_probabilities: Iterable[float]) -> bool:
    """Whether any value is NaN."""
    return any(map(math.isnan, log_probabilities))


def text_position(number: int, total: int) -> MessagePart:
    """Return "text 2 of 3" for the text with index `number` 1. Commands replace it by a line of a file."""
    return MessagePart("text_position", position=number + 1, total=total)
