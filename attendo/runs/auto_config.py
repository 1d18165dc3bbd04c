"""Chooses open settings from the data, with a reason for every choice.

Settings that are given do not change.
"""

import importlib.util
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from attendo.errors import LocalizedText
from attendo.model.config import PRESETS
from attendo.train.config import MRT_PEAK_LR

# Determined by a preset.
SIZE_SETTINGS = ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers")
_ALPHABET_LINES = 20_000  # lines sampled for the alphabets
_MRT_SENTENCES, _MRT_STEPS = 64, 2000
_MAX_EPOCHS = 100  # beyond this, a network mostly memorises the sentences


@dataclass(frozen=True)
class DataStats:
    """Amount of text, and how much the alphabets of both sides overlap."""

    pairs: int
    tokens: int  # estimate for the target side: four letters or 1.5 ideographs per token
    alphabets_overlap: float  # share of the letters of one side that the other uses too
    kind: str | None = None  # of the tokenizer, if the text is already tokenised
    window: int | None = None  # of language-model text; `tokens` are then characters, unless already tokenised


@dataclass(frozen=True)
class SettingChoice:
    """A chosen value for an open setting."""

    name: str  # as in --set
    value: Any
    reason: str


def measure_pairs(pairs: Iterable[tuple[str, str]]) -> DataStats:
    """Read all pairs once and measure them."""
    count, tokens = 0, 0.0
    letters: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    stream = iter(pairs)
    for source, target in islice(stream, _ALPHABET_LINES):
        letters[0].update(source)
        letters[1].update(target)
        count += 1
        tokens += _estimate_tokens(target)
    for _, target in stream:
        count += 1
        tokens += _estimate_tokens(target)
    return DataStats(count, int(tokens), _alphabet_overlap(*letters))


def choose_settings(given: Mapping[str, Any], stats: DataStats) -> list[SettingChoice]:
    """Return choices for the settings that `given`, validated values of a run file, leaves open."""
    given = {name: value for name, value in given.items() if (name, value) != ("preset", "auto")}
    of_preset = {
        name: value for name, value in PRESETS.get(given.get("preset", ""), {}).items() if name not in SIZE_SETTINGS
    }
    given["model"] = {**of_preset, **given.get("model", {})}
    if stats.window is not None:
        return [choice for choice in _choose_for_lm_text(given, stats) if not _is_given(given, choice.name)]
    choices = list(_choose_training(given, stats))
    if not _is_given(given, "start_from"):  # it has its own tokenizer and network
        choices = [*_choose_tokenizer(given, stats), *_choose_network(stats), *choices]
    return [choice for choice in choices if not _is_given(given, choice.name)]


def are_settings_open(file_values: Mapping[str, Any], changed_values: Mapping[str, Any]) -> bool:
    """Return whether open settings are chosen from the data: unless the run file names a preset.

    `changed_values` includes --set. A run file with a preset uses the defaults of the settings classes, so that it
    describes the same run with any data. A preset given by --set fixes only the preset.
    """
    return file_values.get("preset", "auto") == "auto" or changed_values.get("preset", "auto") == "auto"


def apply_choices(given: Mapping[str, Any], choices: Iterable[SettingChoice]) -> dict[str, Any]:
    """Return the values of a run file with the choices added."""
    values = {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
    for choice in choices:
        section, _, name = choice.name.rpartition(".")
        table = values.setdefault(section, {}) if section else values
        table[name] = choice.value
    return values


def _choose_tokenizer(given: Mapping[str, Any], stats: DataStats) -> Iterable[SettingChoice]:
    pairs = LocalizedText("{pairs:,} pairs", pairs=stats.pairs)
    prepared = _is_given(given, "data.prepared")
    own_file = _is_given(given, "tokenizer.file")
    kind = stats.kind if prepared else None if own_file else _get(given, "tokenizer.kind", "bpe")
    if kind in ("bpe", "unigram") and not prepared:
        size = _pick_by_size(stats.pairs, {3_000: 1000, 15_000: 4000, 100_000: 8000, 1_000_000: 16_000}, 32_000)
        yield SettingChoice("tokenizer.size", size, pairs)
    joint, share = stats.alphabets_overlap > 0.8, stats.alphabets_overlap
    reason: str = LocalizedText("{share:.0%} of letters are used on both sides", share=share)
    if own_file:
        joint = not _is_given(given, "tokenizer.target_file")
        reason = "tokenizer.file serves both sides" if joint else "each side has its own file"
    elif (tie := _get(given, "model.tie", None)) in ("all", "inputs"):
        joint, reason = True, LocalizedText("model.tie {tie} needs it", tie=tie)
    elif _get(given, "model.prefix_lm", False):
        joint, reason = True, "model.prefix_lm needs it"
    if not prepared:
        yield SettingChoice("tokenizer.joint", joint, reason)
        joint = _get(given, "tokenizer.joint", joint)
    yield SettingChoice("model.tie", "all" if joint else "output", "one vocabulary" if joint else "two vocabularies")
    if kind == "bpe" and _get(given, "tokenizer.target_kind", "bpe") == "bpe":
        yield SettingChoice("tokenizer.dropout", 0.1 if stats.pairs < 500_000 else 0.0, pairs)


def _choose_for_lm_text(given: Mapping[str, Any], stats: DataStats) -> Iterable[SettingChoice]:
    prepared, size, goes_on = _is_given(given, "data.prepared"), stats.tokens, _is_given(given, "start_from")
    text = LocalizedText("{count:,} tokens" if prepared else "{count:,} characters", count=size)
    kind = _get(given, "tokenizer.kind", "characters" if size < 5_000_000 else "bpe")
    if not (prepared or goes_on or _is_given(given, "tokenizer.file")):
        yield SettingChoice("tokenizer.kind", kind, text)
        if kind in ("bpe", "unigram"):
            yield SettingChoice(
                "tokenizer.size", _pick_by_size(size, {1_000_000: 1000, 20_000_000: 4000}, 16_000), text
            )
    if not prepared:
        if size < 50_000:
            yield SettingChoice("data.window", 64, text)
        if size > 20_000_000 and not _is_given(given, "data.valid_text"):
            yield SettingChoice(
                "data.valid_share", round(2_000_000 / size, 4), "about two million characters to validate with"
            )
    if not goes_on:
        yield SettingChoice("preset", _pick_by_size(size, {200_000: "tiny", 30_000_000: "small"}, "base"), text)
        yield SettingChoice("model.num_encoder_layers", 0, "running text has no source to read")
        yield SettingChoice("model.positions", "rotary", "no position lies beyond those that were learned")
        yield SettingChoice("model.dropout", _pick_by_size(size, {5_000_000: 0.2}, 0.1), text)
    yield from _choose_lm_training(given, size if prepared or kind in ("characters", "bytes") else size // 4)


def _choose_lm_training(given: Mapping[str, Any], tokens: int) -> Iterable[SettingChoice]:
    about = LocalizedText("about {tokens:,} tokens", tokens=tokens)
    at_a_million, most = (5, 10) if _is_given(given, "start_from") else (80, 100)
    epochs = min(max(round(at_a_million * (1_000_000 / max(tokens, 1)) ** 0.5), 3), most)
    budget = 2 ** round(math.log2(min(max(16 * tokens**0.5, 1024), 32_768)))
    steps = yield from _choose_steps(given, tokens, about, epochs, budget)
    warmup = _round_to_two_digits(max(min(steps / 20, 2000), min(30, steps / 3)))
    yield SettingChoice("train.warmup", warmup, "a twentieth of the steps, 30 to 2,000")
    yield SettingChoice("train.label_smoothing", 0.0, "the probability of the text is what counts")
    yield from _choose_validation(given, steps, 20)


def _choose_steps(
    given: Mapping[str, Any], tokens: int, about: str, epochs: int, budget: int
) -> Generator[SettingChoice, None, int]:
    """Choose the batch size, the steps and the schedule. Return the steps of the run."""
    yield SettingChoice("train.batch_tokens", budget, about)
    in_use = _get(given, "train.batch_tokens", budget) * _get(given, "train.accumulate", 1)
    steps = _round_to_two_digits(min(max(epochs * tokens / in_use, 300), 200_000))
    yield SettingChoice("train.steps", steps, LocalizedText("{epochs} epochs of {about}", epochs=epochs, about=about))
    yield SettingChoice("train.schedule", "cosine", "the last steps are small, and settle what the others have found")
    return int(_get(given, "train.steps", steps))


def _choose_validation(given: Mapping[str, Any], steps: int, times: int) -> Iterable[SettingChoice]:
    every = _round_to_two_digits(max(steps / times, 25))
    reason = LocalizedText("{times} times over the run, 25 steps apart at least", times=times)
    yield SettingChoice("train.validate_every", every, reason)
    yield SettingChoice("train.save_every", every, "with every validation")
    validations = max(5, math.ceil(steps / 3 / _get(given, "train.validate_every", every)))
    reason = LocalizedText("stops after {count} validations without a better one", count=validations)
    yield SettingChoice("train.patience", validations, reason)


def _choose_network(stats: DataStats) -> Iterable[SettingChoice]:
    pairs = LocalizedText("{pairs:,} pairs", pairs=stats.pairs)
    yield SettingChoice("preset", _pick_by_size(stats.pairs, {5_000: "tiny", 1_000_000: "small"}, "base"), pairs)
    yield SettingChoice("model.dropout", _pick_by_size(stats.pairs, {60_000: 0.3, 500_000: 0.2}, 0.1), pairs)


def _choose_training(given: Mapping[str, Any], stats: DataStats) -> Iterable[SettingChoice]:
    if _get(given, "train.objective", None) == "mrt":
        yield from _choose_minimum_risk(given, stats)
        return
    tokens = LocalizedText("about {tokens:,} target tokens", tokens=stats.tokens)
    at_10_000, most = (10, 10) if _is_given(given, "start_from") else (160, _MAX_EPOCHS)
    epochs = min(max(round(at_10_000 * (10_000 / max(stats.pairs, 1)) ** 0.5), 3), most)
    budget = 2 ** round(math.log2(min(max(5.5 * stats.tokens**0.5, 512), 32_768)))
    steps = yield from _choose_steps(given, stats.tokens, tokens, epochs, budget)
    warmup = _round_to_two_digits(max(min(steps / 10, 4000), min(30, steps / 3)))
    yield SettingChoice("train.warmup", warmup, "a tenth of the steps, 30 to 4,000 of them")
    yield from _choose_validation(given, steps, 30)
    yield from _choose_metrics(given)


def _choose_minimum_risk(given: Mapping[str, Any], stats: DataStats) -> Iterable[SettingChoice]:
    """Choose short fine-tuning with small steps: candidates are drawn anew for every update."""
    budget = 2 ** round(math.log2(min(max(_MRT_SENTENCES * stats.tokens / max(stats.pairs, 1), 64), 32_768)))
    about = LocalizedText("about {count} sentences, each with its candidates", count=_MRT_SENTENCES)
    yield SettingChoice("train.batch_tokens", budget, about)
    yield SettingChoice("train.steps", _MRT_STEPS, "minimum risk training is short fine-tuning")
    yield SettingChoice("train.peak_lr", MRT_PEAK_LR, "minimum risk training needs small steps")
    yield SettingChoice("train.schedule", "constant", "the samples change with the model, not with a schedule")
    yield SettingChoice("train.warmup", 0, "the learning rate is small enough from the start")
    yield from _choose_validation(given, int(_get(given, "train.steps", _MRT_STEPS)), 10)
    yield from _choose_metrics(given)


def _choose_metrics(given: Mapping[str, Any]) -> Iterable[SettingChoice]:
    """Choose the metrics by the task. The first named metric selects the best model."""
    if named := _get(given, "train.metrics", ()):
        yield SettingChoice("train.best", named[0], "the first of train.metrics")
    elif _get(given, "about.task", None) == "summarization":
        yield SettingChoice("train.best", "rougeL", "summaries are compared by ROUGE")
        yield SettingChoice("train.metrics", ("rouge1", "rouge2", "rougeL"), "of decoded validation text")
    elif importlib.util.find_spec("sacrebleu") is None:
        yield SettingChoice("train.best", "loss", "sacrebleu is not installed: pip install 'attendo[eval]' for chrF")
    else:
        yield SettingChoice("train.best", "chrf", "text that is right counts, not the loss")
        yield SettingChoice("train.metrics", ("bleu", "chrf"), "of decoded validation text")


def _pick_by_size(pairs: int, below: Mapping[int, Any], default: Any) -> Any:
    return next((value for limit, value in below.items() if pairs < limit), default)


def _round_to_two_digits(number: float) -> int:
    """Round to two significant digits; at least 1."""
    number = max(number, 1)
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(round(number / unit) * unit)


def _estimate_tokens(text: str) -> float:
    wide = sum(character > "\u2e7f" for character in text)
    return 1 + wide / 1.5 + (len(text) - wide) / 4


def _alphabet_overlap(first: Counter[str], second: Counter[str]) -> float:
    """Return the smaller of two shares: letters of one side, weighted by frequency, that the other side uses too."""
    shares = [
        sum(count for letter, count in one.items() if letter.isalpha() and other[letter])
        / max(1, sum(count for letter, count in one.items() if letter.isalpha()))
        for one, other in ((first, second), (second, first))
    ]
    return min(shares)


def _is_given(given: Mapping[str, Any], name: str) -> bool:
    return _get(given, name, None) is not None


def _get(given: Mapping[str, Any], name: str, default: Any) -> Any:
    value: Any = given
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value
