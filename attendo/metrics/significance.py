"""Paired bootstrap resampling (Koehn 2004) between two systems."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attendo.errors import UsageError
from attendo.metrics.measure import MetricFormula, References, Score, Statistics, compute_score
from attendo.metrics.perplexity import Likelihoods, check_same_tokens, prepare_perplexity
from attendo.metrics.scores import make_metric

# numpy takes a third of the time a command needs to report a usage error. A single score does not need it.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLES = 1000
SEED = 12345  # sacrebleu's default; the same seed samples the same lines
SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """Two scores on the same lines and the significance of their difference."""

    one: Score
    other: Score
    difference: float  # one - other
    interval: tuple[float, float]  # 95% of the sampled differences
    p_value: float
    signature: str  # of the scores, with samples and seed

    @property
    def significant(self) -> bool:
        """True if p < 0.05 and the interval excludes 0. By chance alone, one p-value in nine is below 0.05."""
        return self.p_value < SIGNIFICANCE_LEVEL and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def one_is_better(self) -> bool:
        return self.difference > 0 if self.one.higher_is_better else self.difference < 0


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
    """Compare two systems by paired bootstrap resampling (Koehn 2004).

    Each sample has the original number of lines, drawn with replacement, and scores both systems on them. The p-value
    is sacrebleu's: the share of samples whose absolute difference, minus the mean, reaches the observed one. It is
    one-sided: about 0.025 if the interval just excludes 0.
    """
    found = make_metric(metric, references, tokenize, one, other)
    return _compare(found, found.statistics(one), found.statistics(other), samples, seed)


def compare_perplexity(
    name: str, one: Likelihoods, other: Likelihoods, *, samples: int = SAMPLES, seed: int = SEED
) -> Comparison:
    """Compare the perplexities of two models on the same references by paired bootstrap."""
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
    sampled_differences = bootstrap_differences(formula.value, one, other, samples, seed)
    return Comparison(
        one=scores[0],
        other=scores[1],
        difference=difference,
        interval=confidence_interval(sampled_differences),
        p_value=p_value(sampled_differences, difference),
        signature=_bootstrap_signature(formula.signature, samples, seed),
    )


def _bootstrap_signature(signature: str, samples: int, seed: int) -> str:
    """Insert samples and seed after the first part of the signature, as sacrebleu does."""
    first, _, rest = signature.partition("|")
    return f"{first}|bs:{samples}|seed:{seed}|{rest}"


def bootstrap_differences(
    value: Callable[[Sequence[float]], float], one: Statistics, other: Statistics, samples: int, seed: int
) -> "NDArray[np.float64]":
    """Return the difference of each bootstrap sample. Both systems use the same sampled lines."""
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
    """Return the 2.5% and 97.5% quantiles."""
    import numpy as np

    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    return low, high


def p_value(differences: "NDArray[np.float64]", observed: float) -> float:
    """Return the p-value with add-one smoothing, so it is never 0. It is 1 for equal outputs."""
    import numpy as np

    sizes = np.abs(differences)
    reached = int((sizes - sizes.mean() >= abs(observed)).sum())
    return (reached + 1) / (len(sizes) + 1)
