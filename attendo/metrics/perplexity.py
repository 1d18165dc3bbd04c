"""How little a model is surprised by references: the perplexity, per token, word or character."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from attendo.errors import UsageError
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
from attendo.text.scripts import SCRIPTS_WITHOUT_SPACES, main_script

PERPLEXITIES = ("perplexity", "perplexity_per_word", "perplexity_per_character")
_MAX_EXPONENT = 700.0  # e to this power is the largest there is


@runtime_checkable
class ScoredText(Protocol):
    @property
    def log_probabilities(self) -> Sequence[float]:
        """Natural logarithms, of each token and, where there is an encoder, of the end."""


@runtime_checkable
class TokenizerInfo(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...


@runtime_checkable
class PrefixSettings(Protocol):
    @property
    def target_prefix(self) -> Sequence[str]:
        """Symbols that every answer begins with."""


@runtime_checkable
class LikelihoodModel(Protocol):
    """What a `TextModel` can do."""

    @property
    def target_tokenizer(self) -> TokenizerInfo: ...

    @property
    def generation(self) -> PrefixSettings: ...

    @property
    def decoder_only(self) -> bool:
        """Whether a reference is what follows the source in one text, which need not end there."""

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> Sequence[ScoredText]: ...


@dataclass(frozen=True)
class Likelihoods:
    """How probable a model finds the references of each line, all of them together where there are several."""

    references: Sequence[tuple[str, ...]]
    log_probability: Sequence[float]
    tokens: Sequence[int]
    tokenizer: TokenizerInfo
    counts_eos: bool  # whether the end of each reference counts as one more token


def compute_likelihoods(model: LikelihoodModel, sources: Sequence[str], references: References) -> Likelihoods:
    """One pass over all references. Symbols that every answer begins with are given, and do not count."""
    right = normalise_references(references)
    if len(sources) != len(right):
        raise UsageError("source_reference_count_mismatch", sources=len(sources), references=len(right))
    if not sources:
        raise UsageError("no_sources_to_score")
    repeated = [source for source, line in zip(sources, right, strict=True) for _ in line]
    scored = iter(model.score_tokens(repeated, flatten_references(right)))
    given = 0 if model.decoder_only else len(model.generation.target_prefix)
    lines = [[next(scored).log_probabilities[given:] for _ in line] for line in right]
    return Likelihoods(
        references=right,
        log_probability=[sum(map(sum, line)) for line in lines],
        tokens=[sum(map(len, line)) for line in lines],
        tokenizer=model.target_tokenizer,
        counts_eos=not model.decoder_only,
    )


def perplexity(name: str, likelihoods: Likelihoods) -> MetricValues:
    """exp(-log p / count): as unsure as a choice between so many that are equally probable.

    The end of a reference counts as one, whatever is counted.
    """
    return make_metric_values(*prepare_perplexity(name, likelihoods))


def prepare_perplexity(name: str, likelihoods: Likelihoods) -> tuple[MetricFormula, Statistics]:
    if name not in PERPLEXITIES:
        known = ", ".join(PERPLEXITIES)
        raise UsageError(
            "unknown_perplexity", name=name, suggestion=suggest_name(name, list(PERPLEXITIES)), known=known
        )
    unit, counts = _count_units(name, likelihoods)
    signature = (
        f"{name}|{reference_count_signature(likelihoods.references)}{unit}|eos:"
        f"{'yes' if likelihoods.counts_eos else 'no'}|{VERSION_SIGNATURE}"
    )
    return MetricFormula(name, signature, False, _perplexity_value), list(
        zip(likelihoods.log_probability, counts, strict=True)
    )


def check_same_tokens(name: str, one: Likelihoods, other: Likelihoods) -> None:
    """Per token, perplexities can be compared only where the tokens are the same."""
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
    """Of nothing, nothing is unsure."""
    log_probability, count = sums
    return math.exp(min(-log_probability / count, _MAX_EXPONENT)) if count else 1.0
