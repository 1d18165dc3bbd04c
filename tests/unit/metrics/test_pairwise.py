"""Scores of every text against every other: the numbers of sacrebleu, pair by pair."""

import numpy as np
import pytest
import sacrebleu
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st

from attendo.errors import UsageError
from attendo.metrics import pairwise
from attendo.metrics.pairwise import pairwise_bleu, pairwise_chrf

# Repeated words and letters, shorter and longer than the longest n-grams, empty, and none in common.
SPECIAL = [
    "",
    " ",
    "a",
    "b",
    "a a a a a a a a",
    "aaaaaaa aaa",
    "the cat sat on the mat .",
    "The cat sat on the mat.",
    "the the the cat, the mat",
    "on the mat sat the cat and the dog and the cat",
    "zwölf Boxkämpfer jagen Viktor – quer!",
    "  spaces   everywhere\tand a tab ",
    "1,000.5 miles (about) & more; $5",
    "the cat sat-\n",
    "我爱自然语言处理。",
    "😀 é e\u0301",
]
WORDS = st.lists(st.sampled_from(["a", "b", "ab", "ba,", "c.", "aa"]), max_size=12).map(" ".join)


def compare(hypotheses: list[str], references: list[str]) -> None:
    chrf, bleu = pairwise_chrf(hypotheses, references), pairwise_bleu(hypotheses, references, tokenize="13a")
    assert chrf.shape == bleu.shape == (len(hypotheses), len(references))
    for row, one in enumerate(hypotheses):
        for column, other in enumerate(references):
            assert chrf[row, column] == pytest.approx(sacrebleu.sentence_chrf(one, [other]).score, abs=1e-9)
            expected = sacrebleu.sentence_bleu(one, [other], use_effective_order=True).score
            assert bleu[row, column] == pytest.approx(expected, abs=1e-9)


def test_every_pair_has_the_score_that_sacrebleu_gives_it() -> None:
    compare(SPECIAL, SPECIAL)


@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_hypotheses_and_references_may_be_different_texts(hypotheses: list[str], references: list[str]) -> None:
    compare(hypotheses, references)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3), st.text(max_size=12))
def test_any_characters_are_counted_as_sacrebleu_counts_them(hypotheses: list[str], reference: str) -> None:
    compare(hypotheses, [reference, *hypotheses])


def test_the_tokeniser_of_bleu_may_be_given_and_otherwise_follows_the_script() -> None:
    texts = ["我爱自然语言处理。", "我爱语言。", "自然语言处理,我爱"]
    found, by_name = pairwise_bleu(texts, texts), pairwise_bleu(texts, texts, tokenize="zh")
    assert np.array_equal(found, by_name)
    assert not np.array_equal(found, pairwise_bleu(texts, texts, tokenize="13a"))
    expected = sacrebleu.sentence_bleu(texts[1], [texts[0]], tokenize="zh", use_effective_order=True).score
    assert found[1, 0] == pytest.approx(expected, abs=1e-9)


def test_an_unknown_tokeniser_is_refused() -> None:
    with pytest.raises(UsageError, check=has_code("unknown_bleu_tokeniser", name="14a")):
        pairwise_bleu(["a"], ["a"], tokenize="14a")


def test_no_texts_give_an_empty_matrix() -> None:
    assert pairwise_chrf([], ["a"]).shape == pairwise_bleu([], ["a"]).shape == (0, 1)
    assert pairwise_chrf(["a"], []).shape == pairwise_bleu(["a"], []).shape == (1, 0)


def test_each_text_is_cut_once_however_often_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[str] = []
    tokenizer = pairwise._load_tokenizer(SPECIAL, None)

    def noted(text: str) -> str:
        cut.append(text)
        return tokenizer(text)

    monkeypatch.setattr(pairwise, "_load_tokenizer", lambda references, tokenize: noted)
    pairwise_bleu(["a b", "c d", "a b"], ["c d", "e f", "a b", "e f"])
    assert cut == ["a b", "c d", "e f"]
