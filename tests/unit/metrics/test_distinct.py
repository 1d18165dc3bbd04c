"""distinct-n, with values counted by hand."""

import pytest
from error_codes import has_code

from attendo import __version__
from attendo.errors import UsageError
from attendo.metrics import Score, check_comparable, compare, compute_metric, score

OUTPUTS = ["I do not know", "I do not", "you know me"]  # 10 words, 6 of them different; 7 pairs, 5 different
RIGHT = ["a", "b", "c"]


def test_distinct_is_the_share_of_distinct_ngrams_over_all_lines() -> None:
    assert score("distinct1", OUTPUTS, RIGHT).value == pytest.approx(100 * 6 / 10)
    assert score("distinct2", OUTPUTS, RIGHT).value == pytest.approx(100 * 5 / 7)


def test_bigrams_do_not_cross_lines() -> None:
    assert score("distinct2", ["a b", "b a", "a b"], RIGHT).value == pytest.approx(100 * 2 / 3)


def test_the_references_do_not_matter() -> None:
    assert score("distinct1", OUTPUTS, RIGHT) == score("distinct1", OUTPUTS, OUTPUTS)


def test_case_and_punctuation_are_ignored_and_chinese_uses_characters() -> None:
    assert score("distinct1", ["Yes, yes. YES!"], ["a"]).value == pytest.approx(100 / 3)
    assert score("distinct1", ["我爱我家"], ["a"]).value == pytest.approx(75)


def test_the_signature_names_the_settings() -> None:
    assert score("distinct2", ["a b"], ["a"]) == Score(
        "distinct2", 100.0, f"distinct2|case:lc|tok:word+char|attendo:{__version__}", True
    )


def test_lines_too_short_for_a_bigram_add_none() -> None:
    assert score("distinct2", ["a", "b c", ""], RIGHT).value == 100
    assert score("distinct2", ["a", "b", ""], RIGHT).value == 0


def test_a_label_is_scored_on_its_own_lines() -> None:
    """The total is not the mean over labels, because words may repeat across labels."""
    found = compute_metric("distinct1", ["a b", "a b", "c c"], RIGHT)
    assert {label: each.value for label, each in found.score_by_label(["x", "y", "y"]).items()} == {
        "x": 100.0,
        "y": 75.0,
    }
    assert found.score.value == pytest.approx(50)


def test_compare_rejects_distinct() -> None:
    for name in ("distinct1", "distinct2"):
        with pytest.raises(UsageError, check=has_code("metric_not_resamplable", metric=name)):
            compare(name, OUTPUTS, OUTPUTS, RIGHT)
        with pytest.raises(UsageError, check=has_code("metric_not_resamplable")):
            check_comparable(name)


def test_each_output_needs_its_reference() -> None:
    with pytest.raises(UsageError, check=has_code("output_reference_count_mismatch", outputs=3, references=1)):
        score("distinct1", OUTPUTS, ["a"])
    with pytest.raises(UsageError, check=has_code("tokenize_only_for_bleu")):
        score("distinct1", OUTPUTS, RIGHT, tokenize="zh")
