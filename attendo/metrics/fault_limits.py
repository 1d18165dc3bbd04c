"""Limits of the fault detectors: defaults, and limits measured on validation text.

`attendo calibrate` stores them as calibration.json in the model folder. A limit is a quantile: of the reference
translations for what is seen in the text, and of the model's outputs for what needs log-probabilities.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from attendo.settings import Settings
from attendo.text.scripts import find_script, unspaced_class

MIN_PAIRS = 200  # for quantiles of the texts
TEXT_TAIL = 0.001  # share of right translations beyond a limit, per detector
SCORE_TAIL = 0.005  # the same for log-probabilities, so that all detectors together have about 1%
_MAX_TRIGRAMS = 2000  # of each side
_MAX_CACHED_TRIGRAMS = 100_000  # of texts that were checked
_MAX_LOG_ODDS = 4.0  # of one trigram
_BUCKET_SIZE, _MAX_BUCKETS = 100, 8
_NUM_QUANTILES = 101
_LENGTH_MARGIN = 1.25
_MIN_STD = 0.01  # outputs of a bucket may all be certain
_WORD = re.compile(rf"[{unspaced_class()}]|[^\W_{unspaced_class()}]+")
Item = TypeVar("Item")
_script = lru_cache(maxsize=8192)(find_script)

Count = Annotated[int, Field(ge=0)]


def split_words(text: str) -> list[str]:
    """Return the words in lower case. In scripts without spaces every character is a word. Punctuation is left out."""
    return _WORD.findall(text.lower())


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the first and last character of each word, the last one excluded.

    Lower case may have another length: the spans are then those of the text as written.
    """
    return [each.span() for each in _WORD.finditer(text)]


@dataclass(frozen=True)
class OutputScore:
    """The log-probability of an output. `contrast` is `log_probability` minus that without the source."""

    tokens: int  # eos included
    log_probability: float  # mean per token
    contrast: float | None = None  # mean per token


class LengthRange(Settings):
    """Lengths of right translations: ln((output words + 1) / (source words + 1)), up to this length of the source."""

    max_words: Count
    low: float
    high: float


class ScoreRange(Settings):
    """Mean log-probabilities per token of the model's outputs, up to this number of tokens."""

    max_tokens: Count
    mean: float
    std: Annotated[float, Field(gt=0)]
    quantiles: Annotated[tuple[float, ...], Field(min_length=2, max_length=1001)]


class ContrastRange(Settings):
    """Contrasts of the model's outputs, and the least usual one."""

    mean: float
    std: Annotated[float, Field(gt=0)]
    low: float


class FaultLimits(Settings):
    """Limits of all detectors. The defaults suit a translator of unknown languages."""

    pairs: Count = Field(0, description="validation pairs that were measured")
    loop: float = Field(0.3, description="share of repeated words, beyond that of the source")
    copied_words: int = Field(4, ge=1, description="words in a row that are also in the source")
    copied_share: float = Field(0.6, description="share of the output, from which such words are a copy")
    lengths: tuple[LengthRange, ...] = Field((), description="lengths, shortest sources first")
    source_trigrams: dict[str, Count] = Field(default_factory=dict, description="frequent character trigrams")
    target_trigrams: dict[str, Count] = Field(default_factory=dict, description="the same of the target")
    source_scripts: dict[str, Count] = Field(default_factory=dict, description="letters by script")
    target_scripts: dict[str, Count] = Field(default_factory=dict, description="the same of the target")
    language: float = Field(0.0, description="least mean log-odds of the target language")
    scores: tuple[ScoreRange, ...] = Field((), description="log-probabilities, shortest outputs first")
    least_z: float = Field(-3.0, description="least usual z-score of a mean log-probability")
    least_log_probability: float = Field(-2.5, description="without `scores`: least mean log-probability per token")
    contrast: ContrastRange = Field(ContrastRange(mean=0.0, std=1.0, low=0.5), description="of outputs to no source")
    min_length_factor: float = Field(0.3, ge=0, description="output tokens per source token of short outputs")
    max_length_factor: float = Field(3.0, ge=0, description="the same of long outputs")

    def length_range(self, source_words: int) -> tuple[float, float]:
        """Return the least and greatest usual length in words."""
        found = self._length_ranges.get(source_words)
        if found is None:
            found = self._length_ranges[source_words] = self._compute_length_range(source_words)
        return found

    @cached_property
    def _length_ranges(self) -> dict[int, tuple[float, float]]:
        return {}

    def _compute_length_range(self, source_words: int) -> tuple[float, float]:
        if not self.lengths:
            low, high = (math.log(1 / 3), math.log(3)) if source_words >= 5 else (-math.inf, math.inf)
        else:
            index = bisect_left(self.lengths, source_words, key=lambda each: each.max_words)
            found = self.lengths[min(index, len(self.lengths) - 1)]
            low, high = found.low, found.high
        return (source_words + 1) * math.exp(low) - 1, (source_words + 1) * math.exp(high) - 1

    def score_range(self, tokens: int) -> ScoreRange | None:
        """Return the statistics for outputs of about this length, or None without calibration."""
        if not self.scores:
            return None
        return self.scores[min(bisect_left(self._score_bounds, tokens), len(self.scores) - 1)]

    @cached_property
    def _score_bounds(self) -> list[int]:
        return [each.max_tokens for each in self.scores]

    def confidence(self, score: OutputScore) -> float | None:
        """Return the share of validation outputs of similar length with a lower mean log-probability."""
        found = self.score_range(score.tokens)
        if found is None:
            return None
        return round(bisect_left(found.quantiles, score.log_probability) / len(found.quantiles), 2)

    def least_score(self, tokens: int) -> float:
        """Return the least usual mean log-probability per token."""
        found = self.score_range(tokens)
        return self.least_log_probability if found is None else found.mean + self.least_z * found.std

    def standardise(self, score: OutputScore) -> float:
        """Return the z-score of the log-probability plus that of the contrast, if it is known."""
        found = self.score_range(score.tokens)
        value = score.log_probability if found is None else (score.log_probability - found.mean) / found.std
        if score.contrast is None:
            return value
        return value + (score.contrast - self.contrast.mean) / self.contrast.std

    @property
    def knows_languages(self) -> bool:
        return bool(self.source_trigrams and self.target_trigrams)

    def language_log_odds(self, text: str) -> float:
        """Return the mean over trigrams of ln p(trigram | target) - ln p(trigram | source), 0 for a text without any.

        A trigram that neither side has counts by the script of its second character.
        """
        table = self._trigram_log_odds
        if len(table) > _MAX_CACHED_TRIGRAMS:
            table = self.__dict__["_trigram_log_odds"] = self._make_trigram_table()
        text = f" {' '.join(text.lower().split())} "
        values = [value for index in range(len(text) - 2) if (value := table[text[index : index + 3]]) is not None]
        return sum(values) / len(values) if values else 0.0

    @cached_property
    def _trigram_log_odds(self) -> "_TrigramTable":
        return self._make_trigram_table()

    def _make_trigram_table(self) -> "_TrigramTable":
        scripts = _log_odds(self.target_scripts, self.source_scripts)
        return _TrigramTable(_log_odds(self.target_trigrams, self.source_trigrams), scripts)


class _TrigramTable(dict[str, float | None]):
    """Log-odds by trigram. It keeps those of new trigrams, which follow from the script, or are None."""

    def __init__(self, trigram_odds: Mapping[str, float], script_odds: Mapping[str, float]) -> None:
        super().__init__(trigram_odds)
        self._script_odds = script_odds

    def __missing__(self, trigram: str) -> float | None:
        letter = trigram[1]
        value = self[trigram] = self._script_odds.get(_script(letter), 0.0) if letter.isalpha() else None
        return value


def measure_texts(sources: Sequence[str], references: Sequence[str]) -> FaultLimits:
    """Return limits from right translations. Without log-probabilities those of scores keep their defaults."""
    words = [(split_words(one), split_words(other)) for one, other in zip(sources, references, strict=True)]
    words = [pair for pair in words if all(pair)]
    if len(words) < MIN_PAIRS:
        return FaultLimits(pairs=len(words))
    tables = FaultLimits(
        source_trigrams=_count_trigrams(sources),
        target_trigrams=_count_trigrams(references),
        source_scripts=_count_scripts(sources),
        target_scripts=_count_scripts(references),
    )
    odds = [tables.language_log_odds(each) for each in references]
    return tables.replace(
        pairs=len(words),
        loop=max(0.2, _next_above([excess_repetition(one, other) for one, other in words])),
        copied_words=max(2, 1 + max_quantile([common_run(one, other)[2] for one, other in words])),
        lengths=_measure_lengths([(len(one), len(other)) for one, other in words]),
        language=min(0.0, float(np.quantile(odds, TEXT_TAIL))),
    )


def measure_scores(limits: FaultLimits, scores: Sequence[OutputScore]) -> FaultLimits:
    """Return the limits with those of log-probabilities, from the model's outputs on validation text."""
    ranges: list[ScoreRange] = []
    for part in _split_buckets(scores, lambda score: score.tokens):
        values = [each.log_probability for each in part]
        quantiles = np.quantile(values, np.linspace(0, 1, _NUM_QUANTILES)).tolist()
        std = max(float(np.std(values)), _MIN_STD)
        ranges.append(
            ScoreRange(max_tokens=part[-1].tokens, mean=float(np.mean(values)), std=std, quantiles=tuple(quantiles))
        )
    limits = limits.replace(scores=tuple(ranges))
    z_scores = [limits.standardise(OutputScore(each.tokens, each.log_probability)) for each in scores]
    contrasts = [each.contrast for each in scores if each.contrast is not None]
    if contrasts:
        mean, std = float(np.mean(contrasts)), max(float(np.std(contrasts)), _MIN_STD)
        low = min(float(np.quantile(contrasts, SCORE_TAIL)), mean / 2)  # a detached output has almost no contrast
        limits = limits.replace(contrast=ContrastRange(mean=mean, std=std, low=low))
    return limits.replace(least_z=float(np.quantile(z_scores, SCORE_TAIL)))


def measure_length_factors(limits: FaultLimits, tokens: Sequence[tuple[int, int]]) -> FaultLimits:
    """Return the limits with the factors for `tokens`: of each source and of its output."""
    factors = [target / source for source, target in tokens if source]
    low, high = np.quantile(factors, [TEXT_TAIL, 1 - TEXT_TAIL]).tolist()
    return limits.replace(min_length_factor=low, max_length_factor=high)


def repetition(words: Sequence[str]) -> float:
    """Return the share of repeated bigrams, or of words in blocks that follow an equal block, if that is greater."""
    bigrams = list(pairwise(words))
    different = len(set(bigrams))
    if different == len(bigrams):
        return 0.0
    first, last = repeated_block(words)
    return max(1 - different / len(bigrams), (last - first) / len(words))


def excess_repetition(source: Sequence[str], output: Sequence[str]) -> float:
    """Return the repetition of the output beyond that of the source."""
    value = repetition(output)
    return max(0.0, value - repetition(source)) if value else 0.0


def repeated_block(words: Sequence[str]) -> tuple[int, int]:
    """Return begin and end of the longest run of words that repeats the words just before it.

    A single word counts if it occurs three times in a row.
    """
    begin = end = 0
    for period in range(1, len(words) // 2 + 1):
        run, least = 0, max(period, 2)
        for index in range(period, len(words)):
            run = run + 1 if words[index] == words[index - period] else 0
            if run >= least and run > end - begin:
                begin, end = index + 1 - run, index + 1
    return begin, end


def common_run(source: Sequence[str], output: Sequence[str]) -> tuple[int, int, int]:
    """Return begin and end of the longest run of output words that is also in the source.

    The last number is how many of its words are not numbers, which are rightly copied.
    """
    shared = {*source}.intersection(output)
    if not shared:
        return 0, 0, 0
    places: dict[str, list[int]] = {}
    for index, word in enumerate(source):
        places.setdefault(word, []).append(index)
    begin = end = 0
    before: dict[int, int] = {}
    for index, word in enumerate(output):
        before = {place: before.get(place - 1, 0) + 1 for place in places.get(word, ())}
        longest = max(before.values(), default=0)
        if longest > end - begin:
            begin, end = index + 1 - longest, index + 1
    return begin, end, sum(not word.isdigit() for word in output[begin:end])


def trigrams(text: str) -> Iterator[str]:
    """Yield the character trigrams of the text in lower case, with a space at both ends."""
    text = f" {' '.join(text.lower().split())} "
    return (text[index : index + 3] for index in range(len(text) - 2))


def max_quantile(values: Sequence[int]) -> int:
    """Return the least number that at most `TEXT_TAIL` of the values exceed."""
    return int(np.quantile(values, 1 - TEXT_TAIL, method="higher"))


def _next_above(values: Sequence[float]) -> float:
    return float(np.quantile(values, 1 - TEXT_TAIL, method="higher")) + 0.01


def _measure_lengths(lengths: Sequence[tuple[int, int]]) -> tuple[LengthRange, ...]:
    """Return the range of each bucket: its mean, plus pooled quantiles of the deviations in standard deviations.

    The quantiles of few pairs are their extremes, which other texts exceed, so they are widened.
    """
    parts = []
    for part in _split_buckets(lengths, lambda each: each[0]):
        ratios = np.log([(target + 1) / (source + 1) for source, target in part])
        parts.append((part[-1][0], ratios, float(ratios.mean()), max(float(ratios.std()), _MIN_STD)))
    deviations = np.concatenate([(ratios - mean) / std for _, ratios, mean, std in parts])
    low, high = (_LENGTH_MARGIN * np.quantile(deviations, [TEXT_TAIL, 1 - TEXT_TAIL])).tolist()
    return tuple(
        LengthRange(max_words=words, low=mean + low * std, high=mean + high * std) for words, _, mean, std in parts
    )


def _split_buckets(items: Sequence[Item], key: Callable[[Item], int]) -> list[list[Item]]:
    """Split items into at most 8 parts by their length, with at least 100 items in all but the only one.

    Items of the same length are in the same part.
    """
    parts: list[list[Item]] = [[]]
    size = max(_BUCKET_SIZE, len(items) // _MAX_BUCKETS)
    for _, group in groupby(sorted(items, key=key), key):
        if len(parts[-1]) >= size:
            parts.append([])
        parts[-1] += group
    if len(parts) > 1 and len(parts[-1]) < _BUCKET_SIZE:
        last = parts.pop()
        parts[-1] += last
    return parts


def _count_trigrams(texts: Iterable[str]) -> dict[str, int]:
    counts = Counter(each for text in texts for each in trigrams(text) if each[1].isalpha())
    return dict(counts.most_common(_MAX_TRIGRAMS))


def _count_scripts(texts: Iterable[str]) -> dict[str, int]:
    return dict(Counter(_script(letter) for text in texts for letter in text if letter.isalpha()))


def _log_odds(target: Mapping[str, int], source: Mapping[str, int]) -> dict[str, float]:
    """Return ln p(key | target) - ln p(key | source) with add-one smoothing, from -4 to 4."""
    size = len({*target, *source})
    totals = math.log((sum(target.values()) + size) / (sum(source.values()) + size)) if size else 0.0
    return {
        key: max(
            -_MAX_LOG_ODDS,
            min(_MAX_LOG_ODDS, math.log((target.get(key, 0) + 1) / (source.get(key, 0) + 1)) - totals),
        )
        for key in {*target, *source}
    }
