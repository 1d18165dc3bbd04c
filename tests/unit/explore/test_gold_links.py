"""Gold links are parsed, checked, and mapped from words to the tokens of any tokenizer."""

import pytest
from error_codes import has_code
from tiny import SOURCES, TARGETS

from attendo.data.pharaoh import parse_links
from attendo.errors import DataError
from attendo.explore.gold_alignment import GoldLinks, check_link_range
from attendo.text import Bytes, Characters, SentencePiece, Tokenizer, Words
from attendo.text_model.token_words import map_tokens_to_words

TEXTS = [*SOURCES, *TARGETS, "the cat scattered"]


def test_a_line_has_sure_and_possible_links() -> None:
    assert parse_links("0-0 1-2  10?3 4p5", "gold line 1") == (
        frozenset({(0, 0), (1, 2)}),
        frozenset({(10, 3), (4, 5)}),
    )
    assert parse_links("", "gold line 1") == (frozenset(), frozenset())


@pytest.mark.parametrize("text", ["1", "0-0 1_2", "-1-2", "a-b", "1-2-3", "١-٢"])
def test_an_invalid_link_raises_with_its_line(text: str) -> None:
    with pytest.raises(DataError, check=has_code("invalid_gold_link", place="gold line 7")):
        parse_links(text, "gold line 7")


def test_a_link_outside_the_sentence_is_rejected() -> None:
    check_link_range(GoldLinks(frozenset({(2, 1)}), frozenset(), ("a", "b", "c"), ("x", "y")), 3, 2, "gold line 1")
    with pytest.raises(
        DataError,
        check=has_code(
            "gold_link_outside_sentence", place="gold line 1", source=2, target=2, sources=3, targets=2, unit="words"
        ),
    ):
        check_link_range(GoldLinks(frozenset(), frozenset({(2, 2)}), ("a",), ("x",)), 3, 2, "gold line 1")
    with pytest.raises(
        DataError,
        check=has_code(
            "gold_link_outside_sentence",
            source=3,
            target=0,
            sources=3,
            unit="tokens",
            fix="give links between words (--links words)",
        ),
    ):
        check_link_range(GoldLinks(frozenset({(3, 0)})), 3, 2, "gold line 1")


@pytest.mark.parametrize(
    "tokenizer",
    [SentencePiece.train(TEXTS * 4, 330), Characters.build(TEXTS), Bytes(), Words.build(TEXTS)],
    ids=lambda each: str(each.kind),
)
@pytest.mark.parametrize("text", ["the cat scattered", "我 看见 小 猫 了", "I  love NLP"])
def test_tokens_are_mapped_to_words_for_every_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    words = text.split()
    word_indices = map_tokens_to_words(tokenizer, text, words, "line 1")
    assert word_indices == sorted(word_indices)
    assert set(word_indices) == set(range(len(words)))
    ids = tokenizer.encode(text)
    for number, word in enumerate(words):
        own = [token for token, index in zip(ids, word_indices, strict=True) if index == number]
        assert tokenizer.decode(own).strip() == word


def test_unknown_words_are_mapped_by_their_length() -> None:
    tokenizer = Words.build(["the cat"])
    assert map_tokens_to_words(tokenizer, "the hippopotamus cat", ["the", "hippopotamus", "cat"], "line 1") == [0, 1, 2]
    assert map_tokens_to_words(tokenizer, "the zoo? cat", ["the", "zoo", "?", "cat"], "line 1") == [0, 1, 2, 3]
    assert map_tokens_to_words(tokenizer, "the zoo? cat", ["the", "zoo?", "cat"], "line 1") == [0, 1, 1, 2]
    assert map_tokens_to_words(tokenizer, "", [], "line 1") == []


def test_words_of_another_text_are_rejected() -> None:
    with pytest.raises(
        DataError, check=has_code("token_word_length_mismatch", place="line 3", token_characters=6, word_characters=5)
    ):
        map_tokens_to_words(Words.build(["the cat"]), "the cat", ["the", "ca"], "line 3")
