"""Perplexity of references under a model, per token, word or character."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from attendo.errors import DataError, UsageError
from attendo.metrics.measure import (
    VERSION_SIGNATURE,
    MetricFormula,
    MetricValues,
    References,
    Statistics,
    flatten_references,
    make_metric_values,
    normalise_references,
    reference_count_signature,
)
from attendo.metrics.text_scores import split_words
from attendo.settings import suggest_name
from attendo.text import Tokenizer
from attendo.text.scripts import SCRIPTS_WITHOUT_SPACES, main_script

PERPLEXITIES = ("perplexity", "perplexity_per_word", "perplexity_per_character")
_MAX_NAMED_LINES = 5
_MAX_EXPONENT = 700.0  # keeps math.exp below the float64 overflow


@runtime_checkable
class ScoredText(Protocol):
    @property
    def log_probabilities(self) -> Sequence[float]:
        """Natural log-probability of each token, and of EOS if the model has an encoder."""


@runtime_checkable
class PrefixSettings(Protocol):
    @property
    def target_prefix(self) -> Sequence[str]:
        """Symbols that every output begins with."""


@runtime_checkable
class LikelihoodModel(Protocol):
    """The part of `TextModel` that perplexity needs."""

    @property
    def target_tokenizer(self) -> Tokenizer: ...

    @property
    def generation(self) -> PrefixSettings: ...

    @property
    def continues_text(self) -> bool:
        """True if a reference continues its source in one text, without EOS."""

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> Sequence[ScoredText]: ...


@dataclass(frozen=True)
class Likelihoods:
    """Log-probability and token count of each line, summed over its references."""

    references: Sequence[tuple[str, ...]]
    log_probability: Sequence[float]
    tokens: Sequence[int]
    tokenizer: Tokenizer
    counts_eos: bool  # EOS of each reference counts as a token


def compute_likelihoods(model: LikelihoodModel, sources: Sequence[str], references: References) -> Likelihoods:
    """Score all references in one pass. The symbols of the target prefix do not count."""
    right = normalise_references(references)
    if len(sources) != len(right):
        raise UsageError("source_reference_count_mismatch", sources=len(sources), references=len(right))
    if not sources:
        raise UsageError("no_sources_to_score")
    repeated = [source for source, line in zip(sources, right, strict=True) for _ in line]
    scores = iter(model.score_tokens(repeated, flatten_references(right)))
    given = 0 if model.continues_text else len(model.generation.target_prefix)
    lines = [[next(scores).log_probabilities[given:] for _ in line] for line in right]
    return Likelihoods(
        references=right,
        log_probability=[sum(map(sum, line)) for line in lines],
        tokens=[sum(map(len, line)) for line in lines],
        tokenizer=model.target_tokenizer,
        counts_eos=not model.continues_text,
    )


def perplexity(name: str, likelihoods: Likelihoods) -> MetricValues:
    """Return the perplexity exp(-log p / count). With an encoder, EOS counts as one unit of any kind."""
    return make_metric_values(*prepare_perplexity(name, likelihoods))


def prepare_perplexity(name: str, likelihoods: Likelihoods) -> tuple[MetricFormula, Statistics]:
    if name not in PERPLEXITIES:
        known = ", ".join(PERPLEXITIES)
        raise UsageError(
            "unknown_perplexity", name=name, suggestion=suggest_name(name, list(PERPLEXITIES)), known=known
        )
    if lines := [n for n, each in enumerate(likelihoods.log_probability, start=1) if each == -math.inf]:
        named = ", ".join(map(str, lines[:_MAX_NAMED_LINES])) + ", ..." * (len(lines) > _MAX_NAMED_LINES)
        raise DataError("perplexity_infinite", name=name, count=len(lines), lines=named)
    unit, counts = _count_units(name, likelihoods)
    signature = (
        f"{name}|{reference_count_signature(likelihoods.references)}{unit}|eos:"
        f"{'yes' if likelihoods.counts_eos else 'no'}|{VERSION_SIGNATURE}"
    )
    return MetricFormula(name, signature, False, _perplexity_value), list(
        zip(likelihoods.log_probability, counts, strict=True)
    )


def check_same_tokens(name: str, one: Likelihoods, other: Likelihoods) -> None:
    """Raise `UsageError` if perplexities per token have different tokenizers."""
    if name == "perplexity" and one.tokenizer != other.tokenizer:
        raise UsageError("perplexity_tokenizers_differ")


def _count_units(name: str, likelihoods: Likelihoods) -> tuple[str, Sequence[int]]:
    if name == "perplexity":
        return f"tok:{likelihoods.tokenizer.kind}-{likelihoods.tokenizer.vocab_size}", likelihoods.tokens
    characters = name == "perplexity_per_character"
    without_spaces = main_script(flatten_references(likelihoods.references)) in SCRIPTS_WITHOUT_SPACES
    count: Callable[[str], int] = len if characters else lambda text: len(split_words(text, without_spaces))
    unit = "tok:codepoint" if characters else f"tok:{'char' if without_spaces else 'space'}"
    return unit, [sum(count(text) + likelihoods.counts_eos for text in line) for line in likelihoods.references]


def _perplexity_value(sums: Sequence[float]) -> float:
    """Compute the perplexity. Without any units it is 1."""
    log_probability, count = sums
    return math.exp(min(-log_probability / count, _MAX_EXPONENT)) if count else 1.0
