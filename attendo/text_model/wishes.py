"""What is asked of an answer beside the settings of decoding, and whether all that was asked can be meant together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from attendo.decode.config import MOST_KEPT, MOST_TOKENS, GenerationConfig
from attendo.decode.likes import like
from attendo.errors import UsageError
from attendo.settings import nearest
from attendo.text_model.phrasing import checked_phrases, holds

_OF_SAMPLES = ("seed", "temperature", "top_k", "top_p", "min_p", "typical")
_OF_BEAMS = ("stop", "patience", "groups", "diversity")


@dataclass(frozen=True)
class Wishes:
    """For one call; the lists are for all texts, or hold one for each of them."""

    n_best: int = 1  # hypotheses of a result
    max_length: int | None = None  # most tokens of an answer; unless given, it follows the length of the source
    min_length: int | None = None  # fewest
    prefix: str | Sequence[str] = ""  # how answers begin
    constraints: Sequence[str] | Sequence[Sequence[str]] = ()  # phrases that must be said
    ban: Sequence[str] = ()  # words or phrases that must not
    split: bool | None = None  # answer each sentence by itself; None: if the model was trained on single sentences
    alignments: bool = False  # tell where the network looked
    distinct: bool | None = None  # no text twice among the hypotheses; None: not of samples, nor with `like`

    def __post_init__(self) -> None:
        for name in ("max_length", "min_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
            if value is not None and value > MOST_TOKENS:
                raise UsageError(f"{name} must be at most {MOST_TOKENS:,}, not {value}")
        if self.min_length and self.max_length and self.min_length > self.max_length:
            raise UsageError(f"min_length {self.min_length} is more than max_length {self.max_length}")
        object.__setattr__(self, "ban", checked_phrases(self.ban, "ban"))
        if self.split and self.constraints:
            raise UsageError("constraints and split exclude each other: they are for whole texts")

    def prefixes(self, count: int) -> list[str]:
        """One for each of so many texts."""
        if isinstance(self.prefix, str):
            return [self.prefix] * count
        if len(self.prefix) != count:
            raise UsageError(f"prefix is one text or one for each: {len(self.prefix)} prefixes and {count} texts")
        return list(self.prefix)

    def phrases(self, count: int) -> list[tuple[str, ...]]:
        """Those that must be said, of each of so many texts."""
        given = self.constraints
        if isinstance(given, str) or all(isinstance(each, str) for each in given):
            return [checked_phrases(given, "constraints")] * count  # type: ignore[arg-type]
        if len(given) != count:
            raise UsageError(
                f"constraints are phrases for all texts or a list for each: {len(given)} and {count} texts"
            )
        return [checked_phrases(each, "constraints") for each in given]

    def check_ban(self, prefix: str, phrases: Sequence[str]) -> None:
        for banned in self.ban:
            if holds(prefix, banned):
                raise UsageError(f"prefix {prefix!r} and ban {banned!r} exclude each other")
            for phrase in phrases:
                if holds(phrase, banned):
                    raise UsageError(f"constraint {phrase!r} and ban {banned!r} exclude each other")


def divided(defaults: GenerationConfig, options: Mapping[str, Any]) -> tuple[Wishes, GenerationConfig]:
    """Options of a call: those of this call alone, and the settings with the rest of them. None is as if left out.

    With `like` the settings are those of another system, not the defaults.
    """
    given = {name: value for name, value in options.items() if value is not None}
    system = given.pop("like", None)
    names = {field.name for field in fields(Wishes)}
    settings = {name: value for name, value in given.items() if name not in names}
    for name in settings:
        if name not in GenerationConfig.model_fields:
            raise UsageError(f"unknown option {name}{nearest(name, [*names, 'like', *GenerationConfig.model_fields])}")
    wishes = Wishes(**{name: value for name, value in given.items() if name in names})
    config = defaults.changed(**settings) if system is None else like(system, settings, defaults)
    config = _checked(config, settings)
    if wishes.distinct is None:
        wishes = replace(wishes, distinct=system is None and not config.sample)
    _check_count(wishes, config)
    _check_lengths(wishes, settings)
    if wishes.constraints and config.sample:
        raise UsageError("constraints and sample exclude each other: a beam searches for answers that hold them")
    if wishes.constraints and config.groups > 1:
        raise UsageError(f"constraints and groups ({config.groups}) exclude each other: take a plain beam")
    if wishes.constraints:
        _check_plain(config, "constraints")
    return wishes, config


def refuse_string(texts: Sequence[str]) -> None:
    """A string is a sequence too, of letters: nobody means that. Nor is anything in the list but text."""
    if isinstance(texts, str):
        raise UsageError("a list of texts is needed: write [text] for a single one")
    if other := [each for each in texts if not isinstance(each, str)]:
        raise UsageError(f"a list of texts is needed: {other[0]!r} in it is none")


def candidates(wishes: Wishes, config: GenerationConfig) -> int:
    """How many hypotheses are needed."""
    if config.mbr == "none":
        return wishes.n_best
    return config.mbr_candidates if config.sample else config.beam


def _checked(config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Nothing that was given may go unused."""
    if config.sample and given.get("beam", 1) > 1:
        raise UsageError("sample and beam exclude each other: n_best is how many samples are drawn")
    if config.mbr != "none" and config.beam == 1:
        config = config.changed(sample=True)
    if config.mbr != "none" and not config.sample and "mbr_candidates" in given:
        raise UsageError(
            f"mbr_candidates and a beam of {config.beam} exclude each other: the candidates are what the beam finds; "
            "for samples set sample"
        )
    if config.mbr == "none" and "mbr_candidates" in given:
        raise UsageError("mbr_candidates is for mbr: say chrf or bleu for it")
    if "repetition_of" in given and config.repetition_penalty == 1:
        raise UsageError("repetition_of is for a repetition_penalty other than 1: set it too, or leave it out")
    if config.normalise == "none" and given.get("length_penalty", 1) not in (0, 1):  # which ask for nothing more
        raise UsageError(
            f"length_penalty {given['length_penalty']} and normalise none exclude each other: take average, gnmt or "
            "reward, or leave it out"
        )
    for name in _OF_SAMPLES:
        if name in given and not config.sample:
            raise UsageError(f"{name} is for samples: set sample too, or leave it out")
    for name in _OF_BEAMS:
        if name in given and (config.sample or config.beam == 1) and given[name] != _neutral(name):
            raise UsageError(f"{name} is for a beam: set beam to 2 or more, or leave it out")
    if "diversity" in given and config.groups == 1:
        raise UsageError("diversity is for a beam in groups: set groups to 2 or more, or leave it out")
    if "patience" in given and config.stop != "first":
        raise UsageError(f"patience and the stop rule {config.stop} exclude each other: it is for the rule first")
    if config.groups > 1 and config.patience != 1:
        raise UsageError(f"groups ({config.groups}) and patience ({config.patience}) exclude each other")
    if config.groups > 1:
        _check_plain(config, f"groups ({config.groups})")
    return config


def _check_lengths(wishes: Wishes, given: Mapping[str, Any]) -> None:
    """A number of tokens takes the place of what follows the length of the source."""
    for side in ("max", "min"):
        number = getattr(wishes, f"{side}_length")
        for name in (f"{side}_length_factor", f"{side}_length_extra"):
            if number is not None and name in given:
                raise UsageError(f"{side}_length and {name} exclude each other: {number} is for sources of any length")
    if wishes.max_length is not None and given.get("min_length_factor"):
        raise UsageError("max_length and min_length_factor exclude each other: take min_length, or max_length_factor")
    if wishes.max_length is not None and (least := given.get("min_length_extra", 0)) > wishes.max_length:
        raise UsageError(f"min_length_extra {least} is more than max_length {wishes.max_length}")


def _check_plain(config: GenerationConfig, what: str) -> None:
    """Some ways to stop are those of a plain beam."""
    if config.at_limit == "free":
        raise UsageError(f"{what} and at_limit free exclude each other: take cut or end")
    if config.stop in ("leader", "shrinking"):
        raise UsageError(f"{what} and the stop rule {config.stop} exclude each other: take first or settled")


def _neutral(name: str) -> Any:
    """What means nothing, so that it may be said of any search."""
    return 1 if name == "groups" else None


def _check_count(wishes: Wishes, config: GenerationConfig) -> None:
    if config.sample:
        most, name = (MOST_KEPT, "samples") if config.mbr == "none" else (config.mbr_candidates, "mbr_candidates")
    else:
        most, name = config.beam, "beam"
    if not 1 <= wishes.n_best <= most:
        raise UsageError(f"n_best must be from 1 to {name} ({most}), not {wishes.n_best}")
