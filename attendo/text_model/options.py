"""Per-call generation options, checks that they are compatible, and errors about single texts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from attendo.decode.config import GenerationConfig
from attendo.decode.options import MAX_FINISHED, MAX_TOKENS, RENAMED_OPTIONS, RENAMED_VALUES, CallFields
from attendo.decode.presets import preset
from attendo.errors import MessagePart, ModelError, UsageError, shorten
from attendo.settings import rename_settings, suggest_name
from attendo.text_model.constraints import contains, validate_phrases
from attendo.text_model.glossary import Glossary
from attendo.text_model.kept_text import KeptTextFinder

CHECKS = ("off", "report", "repair")


@dataclass(frozen=True)
class GenerateOptions(CallFields):
    """Options of one call. The fields are declared in `decode/options.py`."""

    glossary: Glossary | None = None
    kept_text_finder: KeptTextFinder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_length", "min_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("length_below_one", option=name, value=value)
            if value is not None and value > MAX_TOKENS:
                raise UsageError("length_exceeds_token_limit", option=name, limit=MAX_TOKENS, value=value)
        if self.min_length and self.max_length and self.min_length > self.max_length:
            raise UsageError("min_length_exceeds_maximum", min_length=self.min_length, max_length=self.max_length)
        if self.check not in CHECKS:
            raise UsageError("unknown_check", value=shorten(self.check))
        if self.check_detached and self.check == "off":
            raise UsageError("check_detached_without_check")
        object.__setattr__(self, "banned_phrases", validate_phrases(self.banned_phrases, "banned_phrases"))
        object.__setattr__(self, "glossary", _read_glossary(self.glossary))
        object.__setattr__(self, "kept_text_finder", KeptTextFinder(self.keep, self.do_not_translate))
        if self.copies_words and self.has_terms:
            raise UsageError("copies_with_terms", option="replace_unknown" if self.replace_unknown else "transfer_case")
        if self.split and self.constraints:
            raise UsageError("constraints_split_conflict")

    @property
    def copies_words(self) -> bool:
        """Whether outputs take words or case from the source."""
        return self.replace_unknown or self.transfer_case

    @property
    def reads_attention(self) -> bool:
        """Whether the call needs the alignment of each hypothesis."""
        return self.alignments or self.copies_words

    @property
    def has_terms(self) -> bool:
        """Whether the call has a glossary or text to keep."""
        return self.glossary is not None or bool(self.kept_text_finder)

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
        for banned in self.banned_phrases:
            if contains(prefix, banned):
                raise UsageError("prefix_contains_banned_phrase", prefix=prefix, banned=banned)
            for phrase in phrases:
                if contains(phrase, banned):
                    raise UsageError("constraint_contains_banned_phrase", phrase=phrase, banned=banned)


def with_new_option_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options by their new names. Each old name is a `RenamedSettingWarning`.

    None counts as not given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    return rename_settings(given, RENAMED_OPTIONS, RENAMED_VALUES, warn=True)


def split_options(defaults: GenerationConfig, options: Mapping[str, Any]) -> tuple[GenerateOptions, GenerationConfig]:
    """Split the options of a call into `GenerateOptions` and the updated settings. None counts as not given.

    With `preset` the settings are those of another system instead of the defaults.
    """
    given = {name: value for name, value in options.items() if value is not None}
    names = {each.name for each in fields(GenerateOptions) if each.init}
    settings = {name: value for name, value in given.items() if name not in names}
    for name in settings:
        if name not in GenerationConfig.model_fields:
            known = [*names, *GenerationConfig.model_fields]
            raise UsageError("unknown_generation_option", option=name, suggestion=suggest_name(name, known))
    system = given.get("preset")
    config = defaults.override(**settings) if system is None else preset(system, settings, defaults)
    config = _check_config(config, settings)
    call = GenerateOptions(**{name: value for name, value in given.items() if name in names})
    if call.distinct is None:
        call = replace(call, distinct=system is None and not config.sample)
    _check_n_best(call, config)
    _check_lengths(call, settings)
    for name in ("constraints", "glossary"):
        if getattr(call, name):
            _require_beam_search(config, name)
    return call, config


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


class _Requirement(NamedTuple):
    """Options that have an effect only if a condition holds."""

    options: tuple[str, ...]
    is_met: Callable[[GenerationConfig], bool]
    code: str  # of the error if an option is given and the condition does not hold


# Checked in this order. An option that would have no effect is an error.
_REQUIREMENTS = (
    _Requirement(("mbr_candidates",), lambda config: config.mbr != "none", "mbr_candidates_without_mbr"),
    _Requirement(("mbr_candidates",), lambda config: config.sample, "mbr_candidates_beam_conflict"),
    _Requirement(("repetition_of",), lambda config: config.repetition_penalty != 1, "repetition_of_without_penalty"),
    _Requirement(
        ("seed", "temperature", "top_k", "top_p", "min_p", "typical_p"),
        lambda config: config.sample,
        "sampling_option_without_sample",
    ),
    _Requirement(
        ("stop", "patience", "beam_groups", "diversity_penalty"),
        lambda config: config.beam > 1 and not config.sample,
        "beam_option_without_beam",
    ),
    _Requirement(("diversity_penalty",), lambda config: config.beam_groups > 1, "diversity_without_groups"),
    _Requirement(("patience",), lambda config: config.stop == "first", "patience_stop_conflict"),
)
_NEUTRAL_VALUES = {"beam_groups": 1}  # allowed with any search


def _check_config(config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Reject a given option that would have no effect."""
    if config.sample and given.get("beam", 1) > 1:
        raise UsageError("sample_beam_conflict")
    if config.mbr != "none" and config.beam == 1:
        config = config.override(sample=True)
    if config.normalise == "none" and given.get("length_penalty", 1) not in (0, 1):  # 0 and 1 have no effect
        raise UsageError("length_penalty_normalise_conflict", length_penalty=given["length_penalty"])
    for options, is_met, code in _REQUIREMENTS:
        for name in options:
            if name in given and given[name] != _NEUTRAL_VALUES.get(name) and not is_met(config):
                raise UsageError(code, option=name, beam=config.beam, stop=config.stop)
    if config.beam_groups > 1 and config.patience != 1:
        raise UsageError("groups_patience_conflict", groups=config.beam_groups, patience=config.patience)
    if config.beam_groups > 1:
        _require_plain_beam(config, f"beam_groups ({config.beam_groups})")
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


def _read_glossary(given: object) -> Glossary | None:
    if given is None or isinstance(given, Glossary):
        return given
    if not isinstance(given, str | Path):
        raise UsageError("glossary_type", value=shorten(given))
    return Glossary.read(given)


def reject_terms(options: GenerateOptions, feature: str) -> None:
    """Raise a `UsageError` for options that change the text of outputs. `feature` is what does not support them."""
    for name in ("glossary", "do_not_translate", "keep", "replace_unknown", "transfer_case"):
        if getattr(options, name):
            raise UsageError("terms_not_supported", feature=feature, option=name)


def is_plain_beam(config: GenerationConfig) -> bool:
    """Whether a search for required phrases supports the groups and the stopping rules."""
    return config.beam_groups == 1 and config.at_limit != "any" and config.stop not in ("leader", "shrinking")


def _require_beam_search(config: GenerationConfig, option: str) -> None:
    """Reject settings that a search for required phrases does not support."""
    if config.sample:
        raise UsageError("constraints_sample_conflict", option=option)
    if config.beam_groups > 1:
        raise UsageError("constraints_groups_conflict", option=option, groups=config.beam_groups)
    _require_plain_beam(config, option)


def _require_plain_beam(config: GenerationConfig, option: str) -> None:
    """Reject stopping rules that only a plain beam supports."""
    if config.at_limit == "any":
        raise UsageError("at_limit_any_conflict", option=option)
    if config.stop in ("leader", "shrinking"):
        raise UsageError("stop_rule_conflict", option=option, stop=config.stop)


def _check_n_best(options: GenerateOptions, config: GenerationConfig) -> None:
    if config.sample:
        most, name = (MAX_FINISHED, "samples") if config.mbr == "none" else (config.mbr_candidates, "mbr_candidates")
    else:
        most, name = config.beam, "beam"
    if not 1 <= options.n_best <= most:
        raise UsageError("n_best_out_of_range", option=name, limit=most, n_best=options.n_best)


class TooLongError(UsageError):
    """A text exceeds the length limit of the model. `number` is its index in the call, `total` the number of texts."""

    def __init__(self, code: str, /, number: int = 0, total: int = 1, **values: object) -> None:
        super().__init__(code, **_name_text(number, total), **values)
        self.number = number


class NotANumberError(ModelError):
    """A log-probability is NaN. `number` is the index of the text in the call, `total` the number of texts."""

    def __init__(
        self, code: str, /, precision: str = "fp32", number: int = 0, total: int = 1, **values: object
    ) -> None:
        super().__init__(code, precision=precision, **_name_text(number, total), **values)
        self.precision, self.number = precision, number


def _name_text(number: int, total: int) -> dict[str, object]:
    """Return the values that name a text. A caller may replace `text`, such as by the line of a file."""
    position = number + 1
    return {"text": MessagePart("text_position", position=position, total=total), "position": position, "total": total}


def has_nan(log_probabilities: Iterable[float]) -> bool:
    """Whether any value is NaN."""
    return any(map(math.isnan, log_probabilities))
