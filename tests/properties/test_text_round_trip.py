"""decode(encode(text)) is text, and no text names a control id."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from attendo.text import BOS, EOS, PAD, UNK, Characters, SentencePiece, Tokenizer, Words
from attendo.text.words import cut

CONTROL_LIKE = ["<pad>", "<unk>", "<s>", "</s>", "<0x0A>", "<0xE2>", "⁇", " ⁇ ", "▁", "▅", "\\▁"]
FRAGMENTS = [
    *CONTROL_LIKE,
    *("cat", "don't", "it’s", "'", "?", "...", " ", "  ", "\t", "\u00a0", "\u3000", "\u2028", "\x00", "3.14", "_"),
    *("猫", "自然", "？", "👩", "👨\u200d👩", "❤\ufe0f", "🇫🇷", "שלום", "مرحبا", "\u200f", "می\u200cخواهم"),
    *("e\u0301", "\u0301", "नमस्ते", "ß", "İ", "\ufeff", "\ufffd", "\U000e0100"),
]
KNOWN_TEXT = some.lists(some.sampled_from(FRAGMENTS)).map("".join)
# Line breaks are read as spaces; half a surrogate pair is no text.
ANY_LINE = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
MIXED = ["the cat sat on the mat", "I love natural language processing", "你喜欢猫吗？", "</s> a<pad> 3 <0x0A>"] * 3


@given(ANY_LINE)
def test_the_pieces_of_a_text_joined_are_the_text(text: str) -> None:
    assert "".join(cut(text))[1:] == text


@given(KNOWN_TEXT)
def test_words_come_back_exactly(text: str) -> None:
    tokenizer = Words.build([text, "a"])
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert tokenizer.unknown(text) == []


@given(KNOWN_TEXT)
def test_characters_come_back_exactly(text: str) -> None:
    tokenizer = Characters.build(FRAGMENTS)
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=KNOWN_TEXT | ANY_LINE)
def test_sentencepiece_brings_any_line_back_exactly(kind: Any, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert tokenizer.unknown(text) == []
    assert len(tokenizer.pieces(ids)) == len(ids)


@given(KNOWN_TEXT | ANY_LINE)
def test_no_text_names_a_control_id(text: str) -> None:
    tokenizers: list[Tokenizer] = [small_words(), small_characters()]
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        assert not {PAD, BOS, EOS} & set(ids)
        assert ids.count(UNK) == len(tokenizer.unknown(text))


@given(some.data())
def test_sentencepiece_never_returns_a_line_break(data: some.DataObject) -> None:
    tokenizer = trained("bpe")
    ids = data.draw(some.lists(some.integers(0, tokenizer.vocab_size - 1)))
    assert not {"\r", "\n"} & set(tokenizer.decode(ids))


@cache
def trained(kind: Any) -> SentencePiece:
    return SentencePiece.train(MIXED, 290, kind)


@cache
def small_words() -> Words:
    return Words.build(MIXED)


@cache
def small_characters() -> Characters:
    return Characters.build(MIXED)
