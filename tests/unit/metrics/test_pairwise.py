"""Pairwise scores equal those of sacrebleu for every pair."""

import numpy as np
import pytest
import sacrebleu
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st

from attendo.errors import UsageError
from attendo.metrics import pairwise
from attendo.metrics.pairwise import pairwise_bleu, pairwise_chrf

# Repeated words and letters, texts shorter and longer than the longest n-grams, empty texts, and disjoint texts.
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


def check_all_pairs(hypotheses: list[str], references: list[str]) -> None:
    chrf, bleu = pairwise_chrf(hypotheses, references), pairwise_bleu(hypotheses, references, tokenize="13a")
    assert chrf.shape == bleu.shape == (len(hypotheses), len(references))
    for row, one in enumerate(hypotheses):
        for column, other in enumerate(references):
            assert chrf[row, column] == pytest.approx(sacrebleu.sentence_chrf(one, [other]).score, abs=1e-9)
            expected = sacrebleu.sentence_bleu(one, [other], use_effective_order=True).score
            assert bleu[row, column] == pytest.approx(expected, abs=1e-9)


def test_every_pair_has_the_score_of_sacrebleu() -> None:
    check_all_pairs(SPECIAL, SPECIAL)


@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_hypotheses_and_references_may_be_different_texts(hypotheses: list[str], references: list[str]) -> None:
    check_all_pairs(hypotheses, references)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3), st.text(max_size=12))
def test_any_characters_give_the_score_of_sacrebleu(hypotheses: list[str], reference: str) -> None:
    check_all_pairs(hypotheses, [reference, *hypotheses])


def test_the_bleu_tokeniser_follows_the_script_by_default() -> None:
    texts = ["我爱自然语言处理。", "我爱语言。", "自然语言处理,我爱"]
    found, by_name = pairwise_bleu(texts, texts), pairwise_bleu(texts, texts, tokenize="zh")
    assert np.array_equal(found, by_name)
    assert not np.array_equal(found, pairwise_bleu(texts, texts, tokenize="13a"))
    expected = sacrebleu.sentence_bleu(texts[1], [texts[0]], tokenize="zh", use_effective_order=True).score
    assert found[1, 0] == pytest.approx(expected, abs=1e-9)


def test_an_unknown_tokeniser_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("unknown_bleu_tokeniser", name="14a")):
        pairwise_bleu(["a"], ["a"], tokenize="14a")


def test_no_texts_give_an_empty_matrix() -> None:
    assert pairwise_chrf([], ["a"]).shape == pairwise_bleu([], ["a"]).shape == (0, 1)
    assert pairwise_chrf(["a"], []).shape == pairwise_bleu(["a"], []).shape == (1, 0)


def test_each_text_is_tokenized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized: list[str] = []
    tokenizer = pairwise._load_tokenizer(SPECIAL, None)

    def record_text(text: str) -> str:
        tokenized.append(text)
        return tokenizer(text)

    monkeypatch.setattr(pairwise, "_load_tokenizer", lambda references, tokenize: record_text)
    pairwise_bleu(["a b", "c d", "a b"], ["c d", "e f", "a b", "e f"])
    assert tokenized == ["a b", "c d", "e f"]
