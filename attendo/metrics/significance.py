"""Paired bootstrap resampling (Koehn 2004) between two systems."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attendo.errors import UsageError
from attendo.metrics.measure import MetricFormula, References, Score, Statistics, compute_score
from attendo.metrics.perplexity import Likelihoods, check_same_tokens, prepare_perplexity
from attendo.metrics.scores import make_metric

# numpy takes a third of the time in which a command reports a mistake, and a single score does without it.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLES = 1000
SEED = 12345  # as in sacrebleu: the same seed draws the same lines there
SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """Two scores on the same lines, and how far their difference can be trusted."""

    one: Score
    other: Score
    difference: float  # of their values, one - other
    interval: tuple[float, float]  # 95 of 100 samples have a difference in it
    p_value: float
    signature: str  # that of the scores, and how often which lines were drawn

    @property
    def significant(self) -> bool:
        """At 0.05. A p-value below it is not enough: where nothing but chance is at work, one in nine is."""
        return self.p_value < SIGNIFICANCE_LEVEL and not self.interval_contains_zero

    @property
    def one_is_better(self) -> bool:
        return self.difference > 0 if self.one.higher_is_better else self.difference < 0

    @property
    def interval_contains_zero(self) -> bool:
        return self.interval[0] <= 0 <= self.interval[1]


def compare(
    metric: str,
    one: Sequence[str],
    other: Sequence[str],
    references: References,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    tokenize: str | None = None,
) -> Comparison:
    """Paired bootstrap (Koehn 2004).

    A sample draws as many lines as there are, with replacement, and scores both sets on them. The p-value is that of
    sacrebleu: how often the size of the difference, less its mean over the samples, reaches the real one. It looks to
    one side only: where the interval just leaves out 0, it is about 0.025.
    """
    found = make_metric(metric, references, tokenize, one, other)
    return _compare(found, found.statistics(one), found.statistics(other), samples, seed)


def compare_perplexity(
    name: str, one: Likelihoods, other: Likelihoods, *, samples: int = SAMPLES, seed: int = SEED
) -> Comparison:
    """The same of two models that have been asked for the same references."""
    if list(one.references) != list(other.references):
        raise UsageError("models_scored_on_different_references")
    check_same_tokens(name, one, other)
    formula, rows = prepare_perplexity(name, one)
    return _compare(formula, rows, prepare_perplexity(name, other)[1], samples, seed)


def _compare(formula: MetricFormula, one: Statistics, other: Statistics, samples: int, seed: int) -> Comparison:
    if samples < 1:
        raise UsageError("too_few_bootstrap_samples", samples=samples)
    if seed < 0:
        raise UsageError("negative_bootstrap_seed", seed=seed)
    scores = compute_score(formula, one), compute_score(formula, other)
    difference = scores[0].value - scores[1].value
    drawn = bootstrap_differences(formula.value, one, other, samples, seed)
    return Comparison(
        one=scores[0],
        other=scores[1],
        difference=difference,
        interval=confidence_interval(drawn),
        p_value=p_value(drawn, difference),
        signature=_bootstrap_signature(formula.signature, samples, seed),
    )


def _bootstrap_signature(signature: str, samples: int, seed: int) -> str:
    """Where sacrebleu puts it: behind the first part."""
    first, _, rest = signature.partition("|")
    return f"{first}|bs:{samples}|seed:{seed}|{rest}"


def bootstrap_differences(
    value: Callable[[Sequence[float]], float], one: Statistics, other: Statistics, samples: int, seed: int
) -> "NDArray[np.float64]":
    """One a sample: as many lines as there are, drawn with replacement, the same for both."""
    import numpy as np

    generator = np.random.default_rng(seed)
    both, lines, columns = np.hstack([np.array(each, np.float64) for each in (one, other)]), len(one), len(one[0])
    found = np.empty(samples)
    for n in range(samples):
        times = np.bincount(generator.integers(lines, size=lines), minlength=lines)
        sums = (times @ both).tolist()
        found[n] = value(sums[:columns]) - value(sums[columns:])
    return found


def confidence_interval(differences: "NDArray[np.float64]") -> tuple[float, float]:
    """Where 95 of 100 lie."""
    import numpy as np

    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    return low, high


def p_value(differences: "NDArray[np.float64]", observed: float) -> float:
    """Equal outputs reach their difference of 0 every time: p is 1. One is added so that it is never 0."""
    import numpy as np

    sizes = np.abs(differences)
    reached = int((sizes - sizes.mean() >= abs(observed)).sum())
    return (reached + 1) / (len(sizes) + 1)
