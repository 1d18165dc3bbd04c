"""ROUGE compared with its definition and with the rouge-score package."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo import __version__
from attendo.data.corpus_files import read_lines
from attendo.metrics import Score, score
from attendo.metrics.text_scores import longest_common_subsequence, rouge_1, rouge_2, rouge_l, split_rouge_tokens

ROUGES = ("rouge1", "rouge2", "rougeL")
OUTPUTS = [
    "The cat sat; the cat slept.",
    "a dog",
    "",
    "It's 3,000 e-mails - isn't it_?",
    "one",
    "b a b a",
    "❤️ 1️⃣ don’t!",
]
REFERENCES = ["the cat slept and the Cat sat", "A dog ran", "rain", "it is 3000 mails", "one", "a b a b", "1 don't ❤"]
LINES = st.lists(st.sampled_from("abc"), max_size=7)


@pytest.mark.parametrize("name", ROUGES)
def test_english_equals_the_rouge_score_package(name: str) -> None:
    for output, reference in zip(OUTPUTS, REFERENCES, strict=True):
        assert score(name, [output], [reference]).value == pytest.approx(
            100 * rouge_score_f1(name, output, reference), abs=1e-9
        )
    assert score(name, OUTPUTS, REFERENCES).value > 0


@pytest.mark.parametrize("name", ROUGES)
@given(output=st.text(st.characters(codec="ascii")), reference=st.text(st.characters(codec="ascii")))
def test_any_ascii_equals_the_rouge_score_package(name: str, output: str, reference: str) -> None:
    assert score(name, [output], [reference]).value == pytest.approx(
        100 * rouge_score_f1(name, output, reference), abs=1e-9
    )


@pytest.mark.parametrize("name", ROUGES)
def test_real_english_equals_the_rouge_score_package(shared: Path, name: str) -> None:
    lines = list(read_lines(shared / "data" / "multi30k" / "val.en.gz"))[:101]
    lines = [line for line in lines if line.isascii()]
    expected = [
        rouge_score_f1(name, output, reference) for output, reference in zip(lines[1:], lines[:-1], strict=True)
    ]
    found = score(name, lines[1:], lines[:-1]).value
    assert found == pytest.approx(100 * sum(expected) / len(expected), abs=1e-9)
    assert found > 0


def test_the_score_is_the_mean_of_the_lines_in_percent() -> None:
    found = score("rouge1", ["a b", "x"], ["a c", "x"])
    assert found == Score("rouge1", 75.0, f"rouge1|f1|case:lc|stem:no|tok:word+char|attendo:{__version__}", True)


def test_all_three_scores_equal_those_computed_by_hand() -> None:
    """Shared: 3 words of 3 and 4, 1 bigram of 2 and 3, 2 words in the same order."""
    output, reference = ["sat", "the", "cat"], ["the", "cat", "sat", "down"]
    assert rouge_1(output, reference) == pytest.approx(2 * 3 / 7)
    assert rouge_2(output, reference) == pytest.approx(2 * 1 / 5)
    assert rouge_l(output, reference) == pytest.approx(2 * 2 / 7)


def test_repeated_words_are_clipped() -> None:
    assert rouge_1(["a"] * 4, ["a", "a", "b"]) == pytest.approx(2 * 2 / 7)
    assert rouge_2(["a"] * 4, ["a"] * 3) == pytest.approx(2 * 2 / 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's 2 e-mails_now", ["the", "cat", "s", "2", "e", "mails", "now"]),
        ("我爱 NLP，真的。", ["我", "爱", "nlp", "真", "的"]),
        ("猫がマット", ["猫", "が", "マ", "ッ", "ト"]),
        ("고양이가 있다", ["고양이가", "있다"]),
        ("แมว", ["แ", "ม", "ว"]),
        ("Über Brücken", ["über", "brücken"]),
        ("u\u0308ber हिन्दी", ["u\u0308ber", "हिन्दी"]),
        ("½ m² 👍🏽 ❤️", ["m"]),
        (" \t\u3000", []),
    ],
)
def test_tokens_are_words_and_the_characters_of_scripts_without_spaces(text: str, expected: list[str]) -> None:
    assert split_rouge_tokens(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("rouge1", 2 * 8 / (8 + 9)), ("rouge2", 2 * 6 / (7 + 8)), ("rougeL", 2 * 8 / (8 + 9))]
)
def test_chinese_has_a_score_although_the_package_gives_0(name: str, expected: float) -> None:
    output, reference = "那只猫坐在垫子上。", "那只小猫坐在垫子上。"
    assert rouge_score_f1(name, output, reference) == 0
    assert score(name, [output], [reference]).value == pytest.approx(100 * expected)


@given(LINES, LINES)
def test_the_longest_common_subsequence_is_the_longest(one: list[str], other: list[str]) -> None:
    common = subsequences(one) & subsequences(other)
    assert longest_common_subsequence(one, other) == max(map(len, common))


def test_a_common_subsequence_may_be_longer_than_a_machine_word() -> None:
    assert longest_common_subsequence("ab" * 100, "ba" * 100) == 199
    assert longest_common_subsequence("x" * 300, "y" * 200) == 0


def subsequences(line: list[str]) -> set[tuple[str, ...]]:
    return {each for length in range(len(line) + 1) for each in combinations(line, length)}


def rouge_score_f1(name: str, output: str, reference: str) -> float:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer([name], use_stemmer=False)
    return float(scorer.score(reference, output)[name].fmeasure)
