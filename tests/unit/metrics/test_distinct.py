"""How varied outputs are, counted by hand."""

import pytest
from error_codes import has_code

from attendo import __version__
from attendo.errors import UsageError
from attendo.metrics import Score, check_comparable, compare, compute_metric, score

OUTPUTS = ["I do not know", "I do not", "you know me"]  # 10 words, 6 of them different; 7 pairs, 5 different
RIGHT = ["a", "b", "c"]


def test_it_is_the_share_of_different_n_grams_in_all_lines_together() -> None:
    assert score("distinct1", OUTPUTS, RIGHT).value == pytest.approx(100 * 6 / 10)
    assert score("distinct2", OUTPUTS, RIGHT).value == pytest.approx(100 * 5 / 7)


def test_pairs_do_not_reach_from_one_line_into_the_next() -> None:
    assert score("distinct2", ["a b", "b a", "a b"], RIGHT).value == pytest.approx(100 * 2 / 3)


def test_the_references_do_not_matter() -> None:
    assert score("distinct1", OUTPUTS, RIGHT) == score("distinct1", OUTPUTS, OUTPUTS)


def test_case_and_punctuation_do_not_make_words_different_and_chinese_is_counted_by_characters() -> None:
    assert score("distinct1", ["Yes, yes. YES!"], ["a"]).value == pytest.approx(100 / 3)
    assert score("distinct1", ["我爱我家"], ["a"]).value == pytest.approx(75)


def test_the_signature_says_what_was_counted() -> None:
    assert score("distinct2", ["a b"], ["a"]) == Score(
        "distinct2", 100.0, f"distinct2|case:lc|tok:word+char|attendo:{__version__}", True
    )


def test_lines_too_short_for_a_pair_add_none() -> None:
    assert score("distinct2", ["a", "b c", ""], RIGHT).value == 100
    assert score("distinct2", ["a", "b", ""], RIGHT).value == 0


def test_a_label_has_the_variety_of_its_own_lines() -> None:
    """The mean over labels is not the whole: what one line repeats may stand under another label."""
    found = compute_metric("distinct1", ["a b", "a b", "c c"], RIGHT)
    assert {label: each.value for label, each in found.score_by_label(["x", "y", "y"]).items()} == {
        "x": 100.0,
        "y": 75.0,
    }
    assert found.score.value == pytest.approx(50)


def test_two_outputs_are_not_compared_by_lines_drawn_twice() -> None:
    for name in ("distinct1", "distinct2"):
        with pytest.raises(UsageError, check=has_code("metric_not_resamplable", metric=name)):
            compare(name, OUTPUTS, OUTPUTS, RIGHT)
        with pytest.raises(UsageError, check=has_code("metric_not_resamplable")):
            check_comparable(name)


def test_each_output_needs_its_reference_all_the_same() -> None:
    with pytest.raises(UsageError, check=has_code("output_reference_count_mismatch", outputs=3, references=1)):
        score("distinct1", OUTPUTS, ["a"])
    with pytest.raises(UsageError, check=has_code("tokenize_only_for_bleu")):
        score("distinct1", OUTPUTS, RIGHT, tokenize="zh")
