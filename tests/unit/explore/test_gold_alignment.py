"""The alignment error rate of Och and Ney (2003), from counts of links."""

import pytest

from attendo.metrics.alignment_error import LinkCounts


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
