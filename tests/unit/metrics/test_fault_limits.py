"""Limits of fault detectors are quantiles of validation text."""

import math
from random import Random

import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.metrics.fault_limits import (
    SCORE_TAIL,
    FaultLimits,
    OutputScore,
    common_run,
    measure_scores,
    measure_texts,
    repeated_block,
    repetition,
)


def draw_scores(count: int = 2000) -> list[OutputScore]:
    """Longer outputs are less probable and vary less."""
    draw = Random(5)
    tokens = [draw.randint(3, 40) for _ in range(count)]
    return [OutputScore(each, draw.gauss(-each / 40, 2 / each), draw.gauss(4, 0.5)) for each in tokens]


def test_confidence_is_the_share_of_outputs_of_similar_length_with_a_lower_score() -> None:
    scores = draw_scores()
    limits = measure_scores(FaultLimits(), scores)
    for tokens in (5, 20, 38):
        for value in (-1.5, -0.9, -0.5, -0.1):
            near = [each.log_probability for each in scores if abs(each.tokens - tokens) <= 3]
            share = sum(each < value for each in near) / len(near)
            assert limits.confidence(OutputScore(tokens, value)) == pytest.approx(share, abs=0.15)
    assert limits.confidence(OutputScore(20, -9.0)) == 0
    assert limits.confidence(OutputScore(20, 9.0)) == 1
    assert FaultLimits().confidence(OutputScore(20, -1.0)) is None


def test_limits_of_scores_leave_their_share_of_the_outputs_below() -> None:
    scores = draw_scores()
    limits = measure_scores(FaultLimits(), scores)
    below = sum(each.log_probability < limits.least_score(each.tokens) for each in scores) / len(scores)
    assert below == pytest.approx(SCORE_TAIL, abs=0.001)
    assert limits.contrast.low == pytest.approx(2.0, abs=0.1)  # half the mean, which is less than the quantile


@pytest.mark.parametrize(("one", "other"), [(90, 30), (120, 30), (120, 120), (250, 7)])
def test_every_output_is_in_a_range_of_many_outputs(one: int, other: int) -> None:
    scores = [OutputScore(5, -0.1 * n / one) for n in range(one)] + [OutputScore(9, -1.0 * n) for n in range(other)]
    limits = measure_scores(FaultLimits(), scores)
    assert len(limits.scores) == (2 if min(one, other) >= 100 else 1)
    assert limits.scores[-1].max_tokens == 9
    assert limits.confidence(OutputScore(9, -1e9)) == 0


def test_scores_are_standardised_by_length() -> None:
    limits = measure_scores(FaultLimits(), draw_scores())
    values = [limits.standardise(OutputScore(each, -each / 40)) for each in (6, 20, 36)]
    assert values == pytest.approx([0, 0, 0], abs=0.7)
    assert limits.standardise(OutputScore(20, -0.5, 5.0)) > limits.standardise(OutputScore(20, -0.5, 3.0))


def test_few_pairs_keep_the_defaults() -> None:
    limits = measure_texts(["the cat"] * 199, ["die Katze"] * 199)
    assert limits == FaultLimits(pairs=199)
    assert measure_texts(["the cat"] * 200, ["die Katze"] * 200).knows_languages


def test_usual_lengths_follow_the_pairs() -> None:
    draw = Random(2)
    pairs = []
    for _ in range(1000):
        words = draw.randint(1, 30)
        pairs.append(("word " * words, "字" * (2 * words + draw.randint(0, 2))))
    limits = measure_texts([one for one, _ in pairs], [other for _, other in pairs])
    for words in (3, 10, 29, 60):
        low, high = limits.length_range(words)
        assert low <= 2 * words <= high
        assert high < 4.5 * words
        assert low > words / 2


def test_copies_of_the_references_raise_the_limit() -> None:
    texts = [f"a b c d e f number{n} x y z" for n in range(300)]
    limits = measure_texts(texts, [f"{text} und mehr" for text in texts])
    assert limits.copied_words > 9


def test_repeated_blocks_and_common_runs_are_the_longest() -> None:
    assert repeated_block([*"abcdcde"]) == (4, 6)
    assert repeated_block([*"abababcccc"]) == (2, 6)
    assert repeated_block([*"aabbc"]) == (0, 0)  # a doubled word is no loop
    assert repeated_block([*"xaaa"]) == (2, 4)
    assert repetition([*"abc"]) == 0
    assert repetition([*"abab"]) == pytest.approx(0.5)
    assert common_run([*"abcd12"], [*"xbcdy12"]) == (1, 4, 3)
    assert common_run([*"123"], [*"123"]) == (0, 3, 0)
    assert common_run(["a"], ["b"]) == (0, 0, 0)


@pytest.mark.parametrize("broken", [{"loop": math.nan}, {"loops": 1}, {"scores": [{"max_tokens": 3}]}, {"lengths": 3}])
def test_damaged_limits_are_rejected(broken: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        FaultLimits(**broken)
    with pytest.raises(UsageError, check=has_code("unknown_setting", name="loops")):
        FaultLimits(loops=1)
