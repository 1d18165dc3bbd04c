"""AttentionMap accepts any matrix of weights, and rejects other values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from error_codes import ErrorCheck, has_code

from attendo.errors import UsageError
from attendo.explore.attention_map import AttentionMap, format_weight, make_visible


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_lists_arrays_and_tensors_give_the_same_map(make: Callable[[list[list[float]]], Any]) -> None:
    weights = make([[0.25, 0.75], [1.0, 0.0]])
    attention = AttentionMap(weights, ["我", "爱"], ["I", "love"], "head")
    assert attention.weights.tolist() == [[0.25, 0.75], [1.0, 0.0]]
    assert (attention.rows, attention.columns, attention.title) == (("我", "爱"), ("I", "love"), "head")


def test_a_map_copies_its_array() -> None:
    weights = np.array([[1.0]])
    attention = AttentionMap(weights, ["a"], ["b"], "head")
    weights[0, 0] = 0.0
    assert attention.weights[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        attention.weights[0, 0] = 0.5


@pytest.mark.parametrize(
    ("weights", "rows", "columns", "error"),
    [
        ([[0.5, 0.5]], ["a"], ["b"], has_code("attention_map_label_mismatch", title="head 1")),
        ([0.5, 0.5], ["a"], ["b", "c"], has_code("attention_map_not_matrix", title="head 1")),
        ([[]], ["a"], [], has_code("attention_map_not_matrix")),
        ([[float("nan")]], ["a"], ["b"], has_code("attention_weight_out_of_range", value="nan")),
        ([[1.0, -3.5]], ["a"], ["b", "c"], has_code("attention_weight_out_of_range", value=-3.5)),
        ([[0.0, 7.0]], ["a"], ["b", "c"], has_code("attention_weight_out_of_range", value=7.0)),
    ],
)
def test_invalid_weights_raise_with_the_title(
    weights: Any, rows: list[str], columns: list[str], error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        AttentionMap(weights, rows, columns, "head 1")


@pytest.mark.parametrize(
    ("weight", "text"), [(0.0, ""), (0.0049, ""), (0.006, ".01"), (0.93, ".93"), (0.994, ".99"), (0.996, "1.0")]
)
def test_a_short_number_has_at_most_three_characters(weight: float, text: str) -> None:
    assert format_weight(weight) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("自然", "自然"),
        ("▁the", "▁the"),
        ("<b>&", "<b>&"),
        ("a b", "a b"),
        ("", ""),
        ("  ", "␣␣"),
        ("\x1b[2J\n", "␛[2J␊"),
        ("\x7f", "␡"),
        ("\x9b\u2028\ud800\u202e\uffff", "\ufffd" * 5),
        ("👩‍💻", "👩‍💻"),
    ],
)
def test_only_invisible_characters_are_replaced(text: str, shown: str) -> None:
    assert make_visible(text) == shown
