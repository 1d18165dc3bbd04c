"""A row is right if its largest weight is on a gold source word. Heads are compared over all sentences."""

from typing import Any

import numpy as np
import pytest
from error_codes import ErrorCheck, has_code

from attendo.errors import UsageError
from attendo.explore.gold_alignment import HeadScore, HeadScores, LinkCounts, count_aligned


def test_gold_links_are_source_then_target() -> None:
    weights = [[0.1, 0.9, 0.0], [0.8, 0.1, 0.1]]
    assert count_aligned(weights, [(1, 0), (0, 1)]) == (2, 2)
    assert count_aligned(weights, [(2, 0), (1, 1)]) == (0, 2)


def test_any_of_several_gold_columns_is_right_and_counts_once() -> None:
    assert count_aligned([[0.1, 0.7, 0.2]], [(1, 0), (2, 0)]) == (1, 1)


def test_rows_without_a_link_are_not_counted() -> None:
    assert count_aligned([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [(0, 0)]) == (1, 1)
    assert count_aligned([[1.0, 0.0]], []) == (0, 0)


def test_attention_to_the_end_of_sentence_is_wrong() -> None:
    assert count_aligned([[0.2, 0.1, 0.7]], [(0, 0)]) == (0, 1)


@pytest.mark.parametrize("link", [(2, 0), (0, 1), (-1, 0), (0, -1)])
def test_a_link_outside_the_matrix_is_rejected(link: tuple[int, int]) -> None:
    with pytest.raises(
        UsageError, check=has_code("gold_link_outside_weights", source=link[0], target=link[1], sources=2, targets=1)
    ):
        count_aligned([[0.5, 0.5]], [link])


@pytest.mark.parametrize(
    ("weights", "error"),
    [([0.5, 0.5], has_code("alignment_weights_not_matrix")), ([[np.nan, 1.0]], has_code("alignment_weights_nan"))],
)
def test_invalid_weights_are_rejected(weights: Any, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        count_aligned(weights, [])


def test_the_best_head_is_the_most_accurate_over_all_sentences() -> None:
    scores = HeadScores()
    good, bad = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    gold = [(0, 0), (1, 1)]
    scores.add(0, 0, good, gold)
    scores.add(0, 0, bad, gold)
    scores.add(1, 3, good, gold)
    scores.add(1, 3, [[1.0, 0.0], [1.0, 0.0]], gold)
    assert scores.scores() == [HeadScore(0, 0, 2, 4), HeadScore(1, 3, 3, 4)]
    assert scores.best() == HeadScore(layer=1, head=3, right=3, counted=4)
    assert scores.best().accuracy == 0.75


def test_the_first_of_equal_heads_is_best() -> None:
    scores = HeadScores()
    for layer, head in [(1, 0), (0, 1), (0, 0)]:
        scores.add(layer, head, [[1.0, 0.0]], [(0, 0)])
    assert scores.best() == HeadScore(0, 0, 1, 1)


def test_heads_without_counted_rows_are_skipped() -> None:
    scores = HeadScores()
    scores.add(0, 0, [[1.0]], [])
    assert scores.scores() == []
    with pytest.raises(UsageError, check=has_code("no_aligned_tokens_counted")):
        scores.best()


def test_the_error_rate_uses_sure_and_possible_links() -> None:
    sure, possible = {(0, 0), (1, 1)}, {(2, 1)}
    assert LinkCounts.from_links(sure, sure, possible).error_rate == 0
    assert LinkCounts.from_links([*sure, (2, 1)], sure, possible).error_rate == 0
    assert LinkCounts.from_links([(0, 0)], sure, possible).error_rate == pytest.approx(1 / 3)
    assert LinkCounts.from_links([(0, 0), (5, 5)], sure, possible).error_rate == 0.5
    assert LinkCounts.from_links([], sure).error_rate == 1
    assert LinkCounts.from_links([], [], possible).error_rate is None


def test_the_error_rate_of_a_text_is_not_a_mean_of_sentences() -> None:
    both = LinkCounts.from_links([(0, 0)], [(0, 0)]) + LinkCounts.from_links([(0, 1)], [(0, 0), (1, 1), (2, 2)])
    assert both == LinkCounts(found=2, sure=4, found_sure=1, found_possible=1)
    assert both.error_rate == pytest.approx(1 - 2 / 6)
