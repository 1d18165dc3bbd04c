"""Minimum Bayes risk: expected utilities compared with hand-computed numbers and with sums over all candidates."""

import math
from collections.abc import Sequence

import pytest
from error_codes import ErrorCheck, has_code
from hypothesis import given
from hypothesis import strategies as st

from attendo.decode.mbr import probability_weights, rank_by_utility
from attendo.errors import UsageError


def letter_overlap(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[float]]:
    """Common letters divided by the letters of the hypothesis, so not symmetric."""
    return [[len({*one} & {*other}) / max(1, len({*one})) for other in references] for one in hypotheses]


TEXTS = st.lists(st.text("abcd", max_size=4), min_size=1, max_size=9)


def test_the_candidate_with_the_highest_mean_utility_is_the_best() -> None:
    """ab: 1 + 1/2 + 0. b: 1 + 1 + 0. c: 0 + 0 + 1."""
    ranking = rank_by_utility(["ab", "b", "c"], letter_overlap)
    assert ranking.order[0] == 1
    assert ranking.order == (1, 0, 2)
    assert ranking.expected == pytest.approx([1.5 / 3, 2 / 3, 1 / 3])


def test_a_row_is_a_hypothesis_and_a_column_a_reference() -> None:
    ranking = rank_by_utility("xy", lambda hypotheses, references: [[1, 0], [5, 0]])
    assert ranking.expected == (0.5, 2.5)
    assert ranking.order[0] == 1


def test_weights_change_the_best_candidate() -> None:
    ranking = rank_by_utility(["ab", "b", "c"], letter_overlap, [0.1, 0.1, 0.8])
    assert ranking.order[0] == 2
    assert ranking.expected == pytest.approx([0.15, 0.2, 0.8])
    assert rank_by_utility(["ab", "b", "c"], letter_overlap, [1.0, 1.0, 8.0]).expected == pytest.approx(
        ranking.expected
    )


def test_duplicates_are_compared_once_and_counted_twice() -> None:
    calls: list[tuple[list[str], list[str]]] = []

    def record_call(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[float]]:
        calls.append((list(hypotheses), list(references)))
        return letter_overlap(hypotheses, references)

    ranking = rank_by_utility(["c", "ab", "c", "b", "c"], record_call)
    assert calls == [(["c", "ab", "b"], ["c", "ab", "b"])]
    assert ranking.order == (0, 2, 4, 3, 1)
    assert ranking.expected == pytest.approx([0.6, 0.3, 0.6, 0.4, 0.6])


@given(TEXTS, st.data())
def test_expected_utilities_are_the_sums_over_all_candidates(texts: list[str], data: st.DataObject) -> None:
    weight = st.floats(0.01, 10)
    weights = data.draw(st.none() | st.lists(weight, min_size=len(texts), max_size=len(texts)))
    ranking = rank_by_utility(texts, letter_overlap, weights)
    used_weights = weights or [1.0] * len(texts)
    for index, text in enumerate(texts):
        gain = math.fsum(
            w * letter_overlap([text], [other])[0][0] for w, other in zip(used_weights, texts, strict=True)
        )
        assert ranking.expected[index] == pytest.approx(gain / math.fsum(used_weights))
    assert sorted(ranking.order) == list(range(len(texts)))
    assert [ranking.expected[index] for index in ranking.order] == sorted(ranking.expected, reverse=True)
    assert ranking.order[0] == ranking.expected.index(max(ranking.expected))


def test_candidates_may_be_any_hashable_values() -> None:
    ranking = rank_by_utility([(4, 5), (4,), (4, 5)], lambda one, other: [[a == b for b in other] for a in one])
    assert ranking.expected == pytest.approx([2 / 3, 1 / 3, 2 / 3])


def test_probabilities_are_weights_that_sum_to_one() -> None:
    logarithms = [math.log(0.06), math.log(0.02), -math.inf]
    assert probability_weights(logarithms) == pytest.approx([0.75, 0.25, 0])
    assert probability_weights([-5000.0, -5000.0]) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([1.0], has_code("candidate_weight_count_mismatch", candidates=3, weights=1)),
        ([3.0, -2.0, 1.0], has_code("candidate_weights_invalid", weight=-2.0)),
        ([1.0, math.nan, 1.0], has_code("candidate_weights_invalid", weight="nan")),
        ([math.inf, 1.0, 1.0], has_code("candidate_weights_invalid", weight="inf")),
        ([0.0, 0.0, 0.0], has_code("candidate_weights_invalid", weight="0 for all")),
    ],
)
def test_invalid_weights_are_rejected(weights: list[float], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        rank_by_utility(["a", "b", "c"], letter_overlap, weights)


def test_no_candidates_and_invalid_utilities_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("no_candidates")):
        rank_by_utility([], letter_overlap)
    with pytest.raises(UsageError, check=has_code("candidates_without_probability")):
        probability_weights([-math.inf])
    with pytest.raises(UsageError, check=has_code("utility_shape_mismatch", count=2)):
        rank_by_utility(["a", "b"], lambda one, other: [[1.0, 2.0]])
    with pytest.raises(UsageError, check=has_code("utility_not_finite")):
        rank_by_utility(["a", "b"], lambda one, other: [[1.0, math.nan], [0.0, 1.0]])
