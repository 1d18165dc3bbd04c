"""The edit distance compared with its recursive definition."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.metrics.text_scores import edit_distance, split_words

LINES = st.lists(st.sampled_from(["a", "b", "c", "dd"]), max_size=9).map(tuple)


@cache
def recursive_distance(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    if not one or not other:
        return len(one) + len(other)
    changed = recursive_distance(one[:-1], other[:-1]) + (one[-1] != other[-1])
    return min(changed, recursive_distance(one[:-1], other) + 1, recursive_distance(one, other[:-1]) + 1)


@given(LINES, LINES)
def test_edit_distance_equals_the_definition(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert edit_distance(one, other) == recursive_distance(one, other)
    assert edit_distance(other, one) == edit_distance(one, other)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("ab" * 100, "ba" * 100, 2),
        ("x" * 300, "y" * 200, 300),
    ],
)
def test_known_distances(one: str, other: str, distance: int) -> None:
    assert edit_distance(one, other) == distance


def test_split_words_returns_words_or_characters() -> None:
    assert split_words("  the\tcat  sat ", by_character=False) == ["the", "cat", "sat"]
    assert list(split_words(" 我 爱\u3000你", by_character=True)) == ["我", "爱", "你"]
