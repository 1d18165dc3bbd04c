"""The paired bootstrap compared with sacrebleu, and on cases with a known result."""

from random import Random

import numpy as np
import pytest
from error_codes import has_code
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from attendo.errors import UsageError
from attendo.metrics import METRICS, compare, score
from attendo.metrics.scores import Score
from attendo.metrics.significance import Comparison

WORDS = (
    "the",
    "a",
    "small",
    "old",
    "cat",
    "dog",
    "bird",
    "sees",
    "finds",
    "likes",
    "tree",
    "house",
    "door",
    "in",
    "by",
)
LINES = 80
BY_LINE = [name for name in METRICS if not name.startswith("distinct")]


def random_lines(seed: int) -> list[str]:
    generator = Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) for _ in range(LINES)]


def replace_words(lines: list[str], share: float, seed: int) -> list[str]:
    """Replaces this share of the words."""
    generator = Random(seed)
    return [
        " ".join(generator.choice(WORDS) if generator.random() < share else word for word in line.split())
        for line in lines
    ]


REFERENCES = random_lines(0)
GOOD, FAIR, BAD = (
    replace_words(REFERENCES, 0.2, 1),
    replace_words(REFERENCES, 0.25, 2),
    replace_words(REFERENCES, 0.6, 3),
)


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU(force=True)), ("chrf", CHRF()), ("ter", TER())])
@pytest.mark.parametrize("other", [FAIR, BAD], ids=["fair", "bad"])
def test_compare_equals_the_paired_bootstrap_of_sacrebleu(name: str, metric: Metric, other: list[str]) -> None:
    """The same seed draws the same lines, so both results are equal."""
    signatures, results = PairedTest(
        [("other", other), ("good", GOOD)], {name: metric}, [REFERENCES], test_type="bs", n_samples=300
    )()
    ((_, signature),) = signatures.items()
    (baseline, system) = next(found for key, found in results.items() if key != "System")
    found = compare(name, GOOD, other, REFERENCES, samples=300, seed=12345)
    assert (found.one.value, found.other.value) == (system.score, baseline.score)
    assert found.p_value == pytest.approx(system.p_value, abs=1.01 / 301)
    assert found.signature == str(signature)


@pytest.mark.parametrize("name", BY_LINE)
def test_both_scores_equal_those_of_score(name: str) -> None:
    found = compare(name, GOOD, BAD, REFERENCES, samples=10)
    assert (found.one, found.other) == (score(name, GOOD, REFERENCES), score(name, BAD, REFERENCES))
    assert found.difference == found.one.value - found.other.value
    first, _, rest = found.one.signature.partition("|")
    assert found.signature == f"{first}|bs:10|seed:12345|{rest}"


@pytest.mark.parametrize("name", [name for name in BY_LINE if name not in ("exact_match", "error_rate")])
def test_a_large_difference_is_significant(name: str) -> None:
    found = compare(name, GOOD, BAD, REFERENCES, samples=200)
    assert found.significant
    assert found.p_value == pytest.approx(1 / 201)
    assert found.one_is_better
    assert found.interval[0] < found.difference < found.interval[1]
    swapped = compare(name, BAD, GOOD, REFERENCES, samples=200)
    assert swapped.significant
    assert not swapped.one_is_better
    assert swapped.difference == -found.difference
    assert swapped.interval == pytest.approx((-found.interval[1], -found.interval[0]))


@pytest.mark.parametrize("name", BY_LINE)
def test_equal_outputs_are_not_significant(name: str) -> None:
    found = compare(name, GOOD, GOOD, REFERENCES, samples=50)
    assert (found.difference, found.interval, found.p_value) == (0, (0, 0), 1)
    assert not found.significant
    assert not found.one_is_better


def test_exact_match_has_a_binomial_interval() -> None:
    """30 of 100 lines are right in one system and 0 in the other: binomial, standard deviation 4.58."""
    references = [str(n) for n in range(100)]
    one = [line if n < 30 else "" for n, line in enumerate(references)]
    low, high = compare("exact_match", one, [""] * 100, references, samples=4000).interval
    assert low == pytest.approx(30 - 1.96 * 4.58, abs=1.5)
    assert high == pytest.approx(30 + 1.96 * 4.58, abs=1.5)


def test_lines_are_resampled_in_pairs() -> None:
    """One system is right on the lines of the other and on 10% more. Unpaired sampling would hide that."""
    references = [str(n) for n in range(200)]
    other = [line if n % 2 else "" for n, line in enumerate(references)]
    one = [line if n % 2 or n % 10 == 0 else "" for n, line in enumerate(references)]
    found = compare("exact_match", one, other, references)
    assert found.significant
    assert found.interval[1] - found.interval[0] == pytest.approx(2 * 1.96 * 100 * (0.1 * 0.9 / 200) ** 0.5, rel=0.1)


def test_only_the_seed_determines_the_samples() -> None:
    np.random.seed(0)
    first = compare("chrf", GOOD, FAIR, REFERENCES, samples=50, seed=1)
    np.random.seed(1)
    assert compare("chrf", GOOD, FAIR, REFERENCES, samples=50, seed=1) == first
    assert compare("chrf", GOOD, FAIR, REFERENCES, samples=50, seed=2).interval != first.interval


def test_significance_needs_an_interval_without_zero() -> None:
    equal = Score("bleu", 1.0, "", True)
    assert Comparison(equal, equal, 1.0, (0.1, 2.0), 0.04, "").significant
    assert not Comparison(equal, equal, 1.0, (-0.1, 2.0), 0.04, "").significant
    assert not Comparison(equal, equal, 1.0, (0.1, 2.0), 0.05, "").significant
    assert not Comparison(equal, equal, -1.0, (-2.0, 0.0), 0.04, "").significant


def test_a_sample_without_reference_words_is_allowed() -> None:
    """One of two lines has no words; a quarter of the samples contains only that line."""
    found = compare("word_error_rate", ["a c", "b"], ["a c", ""], ["a c", ""], samples=100)
    assert found.interval == (0, 100)


def test_compare_accepts_a_bleu_tokeniser() -> None:
    assert "|tok:char|" in compare("bleu", GOOD, BAD, REFERENCES, samples=2, tokenize="char").signature


def test_invalid_comparisons_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("too_few_bootstrap_samples", samples=0)):
        compare("chrf", GOOD, BAD, REFERENCES, samples=0)
    with pytest.raises(UsageError, check=has_code("negative_bootstrap_seed", seed=-1)):
        compare("chrf", GOOD, BAD, REFERENCES, seed=-1)
    with pytest.raises(UsageError, check=has_code("output_reference_count_mismatch", outputs=1, references=LINES)):
        compare("chrf", GOOD, BAD[:1], REFERENCES)
    with pytest.raises(UsageError, check=has_code("output_reference_count_mismatch", outputs=1, references=LINES)):
        compare("chrf", GOOD[:1], BAD, REFERENCES)
    with pytest.raises(UsageError, check=has_code("unknown_metric", name="belu")):
        compare("belu", GOOD, BAD, REFERENCES)
