"""Minimum Bayes risk: expected utilities by hand, and against plain sums over all candidates."""

import math
from collections.abc import Sequence

import pytest
from error_codes import ErrorCheck, has_code
from hypothesis import given
from hypothesis import strategies as st

from attendo.decode.mbr import probability_weights, rank_by_utility
from attendo.errors import UsageError


def shared(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[float]]:
    """Letters in common, as a share of the hypothesis: not the same both ways round."""
    return [[len({*one} & {*other}) / max(1, len({*one})) for other in references] for one in hypotheses]


TEXTS = st.lists(st.text("abcd", max_size=4), min_size=1, max_size=9)


def test_the_candidate_that_agrees_most_with_the_others_is_the_best() -> None:
    """ab: 1 + 1/2 + 0. b: 1 + 1 + 0. c: 0 + 0 + 1."""
    risk = rank_by_utility(["ab", "b", "c"], shared)
    assert risk.best == 1
    assert risk.order == (1, 0, 2)
    assert risk.expected == pytest.approx([1.5 / 3, 2 / 3, 1 / 3])


def test_a_row_is_a_hypothesis_and_a_column_a_reference() -> None:
    risk = rank_by_utility("xy", lambda hypotheses, references: [[1, 0], [5, 0]])
    assert risk.expected == (0.5, 2.5)
    assert risk.best == 1


def test_weights_decide_whose_agreement_counts() -> None:
    risk = rank_by_utility(["ab", "b", "c"], shared, [0.1, 0.1, 0.8])
    assert risk.best == 2
    assert risk.expected == pytest.approx([0.15, 0.2, 0.8])
    assert rank_by_utility(["ab", "b", "c"], shared, [1.0, 1.0, 8.0]).expected == pytest.approx(risk.expected)


def test_what_was_drawn_twice_is_compared_once_and_weighs_twice() -> None:
    seen: list[tuple[list[str], list[str]]] = []

    def noted(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[float]]:
        seen.append((list(hypotheses), list(references)))
        return shared(hypotheses, references)

    risk = rank_by_utility(["c", "ab", "c", "b", "c"], noted)
    assert seen == [(["c", "ab", "b"], ["c", "ab", "b"])]
    assert risk.order == (0, 2, 4, 3, 1)
    assert risk.expected == pytest.approx([0.6, 0.3, 0.6, 0.4, 0.6])


@given(TEXTS, st.data())
def test_expected_utilities_are_the_sums_over_all_candidates(texts: list[str], data: st.DataObject) -> None:
    weight = st.floats(0.01, 10)
    weights = data.draw(st.none() | st.lists(weight, min_size=len(texts), max_size=len(texts)))
    risk = rank_by_utility(texts, shared, weights)
    counted = weights or [1.0] * len(texts)
    for place, text in enumerate(texts):
        gain = math.fsum(w * shared([text], [other])[0][0] for w, other in zip(counted, texts, strict=True))
        assert risk.expected[place] == pytest.approx(gain / math.fsum(counted))
    assert sorted(risk.order) == list(range(len(texts)))
    assert [risk.expected[place] for place in risk.order] == sorted(risk.expected, reverse=True)
    assert risk.best == risk.order[0] == risk.expected.index(max(risk.expected))


def test_candidates_may_be_anything_that_can_be_a_key() -> None:
    risk = rank_by_utility([(4, 5), (4,), (4, 5)], lambda one, other: [[a == b for b in other] for a in one])
    assert risk.expected == pytest.approx([2 / 3, 1 / 3, 2 / 3])


def test_probabilities_are_weights_that_sum_to_one() -> None:
    logarithms = [math.log(0.06), math.log(0.02), -math.inf]
    assert probability_weights(logarithms) == pytest.approx([0.75, 0.25, 0])
    assert probability_weights(logarithms, scale=0.5) == pytest.approx([3**0.5 / (1 + 3**0.5), 1 / (1 + 3**0.5), 0])
    assert probability_weights(logarithms, scale=0.0) == pytest.approx([0.5, 0.5, 0])
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
def test_weights_that_make_no_sense_are_refused(weights: list[float], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        rank_by_utility(["a", "b", "c"], shared, weights)


def test_nothing_to_choose_from_and_utilities_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, check=has_code("no_candidates")):
        rank_by_utility([], shared)
    with pytest.raises(UsageError, check=has_code("candidates_without_probability")):
        probability_weights([-math.inf])
    with pytest.raises(UsageError, check=has_code("utility_shape_mismatch", count=2)):
        rank_by_utility(["a", "b"], lambda one, other: [[1.0, 2.0]])
    with pytest.raises(UsageError, check=has_code("utility_not_finite")):
        rank_by_utility(["a", "b"], lambda one, other: [[1.0, math.nan], [0.0, 1.0]])
