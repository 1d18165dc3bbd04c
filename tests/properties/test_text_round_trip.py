"""decode(encode(text)) is text, and no text names a control id."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from attendo.text import BOS, EOS, PAD, UNK, Bytes, Characters, SentencePiece, Tokenizer, Words
from attendo.text.words import split_pieces

CONTROL_LIKE = ["<pad>", "<unk>", "<s>", "</s>", "<0x0A>", "<0xE2>", "⁇", " ⁇ ", "▁", "▅", "\\▁"]
FRAGMENTS = [
    *CONTROL_LIKE,
    *("cat", "don't", "it’s", "'", "?", "...", " ", "  ", "\t", "\u00a0", "\u3000", "\u2028", "\x00", "3.14", "_"),
    *("猫", "自然", "？", "👩", "👨\u200d👩", "❤\ufe0f", "🇫🇷", "שלום", "مرحبا", "\u200f", "می\u200cخواهم"),
    *("e\u0301", "\u0301", "नमस्ते", "ß", "İ", "\ufeff", "\ufffd", "\U000e0100"),
]
# Some hold or overlap others, or parts of control pieces and of words.
SYMBOLS = ("<2de>", "<2", "de>x", "ca", "猫", "s>", "☃")
KNOWN_TEXT = some.lists(some.sampled_from(FRAGMENTS)).map("".join)
TAGGED_TEXT = some.lists(some.sampled_from([*FRAGMENTS, *SYMBOLS, " ", "x"])).map("".join)
# Line breaks are read as spaces; half a surrogate pair is no text.
ANY_LINE = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
MIXED = ["the cat sat on the mat", "I love natural language processing", "你喜欢猫吗？", "</s> a<pad> 3 <0x0A>"] * 3


@given(ANY_LINE)
def test_the_pieces_of_a_text_joined_are_the_text(text: str) -> None:
    assert "".join(split_pieces(text))[1:] == text


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


@given(TAGGED_TEXT)
def test_words_and_characters_bring_symbols_back_exactly(text: str) -> None:
    tokenizers: list[Tokenizer] = [
        Words.build([text, "a"], symbols=SYMBOLS),
        Characters.build([text, "a"], symbols=SYMBOLS),
    ]
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
        assert min(ids, default=EOS + 1) > EOS
        assert symbols_among(ids) == symbols_in(text)
        assert tokenizer.unknown(text) == []


@given(TAGGED_TEXT | ANY_LINE)
def test_bytes_bring_any_line_back_exactly(text: str) -> None:
    tokenizer = Bytes(SYMBOLS)
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert symbols_among(ids) == symbols_in(text)
    assert len(tokenizer.pieces(ids)) == len(ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=TAGGED_TEXT | ANY_LINE)
def test_sentencepiece_brings_symbols_back_exactly(kind: Any, text: str) -> None:
    tokenizer = trained(kind, SYMBOLS)
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert symbols_among(ids) == symbols_in(text)


@given(some.lists(TAGGED_TEXT | ANY_LINE))
def test_many_texts_are_encoded_as_each_alone(texts: list[str]) -> None:
    tokenizers = [trained("bpe"), trained("unigram", SYMBOLS), small_words(), small_characters(), Bytes(SYMBOLS)]
    for tokenizer in tokenizers:
        assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]


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
def test_no_ids_make_a_line_break(data: some.DataObject) -> None:
    for tokenizer in (trained("bpe"), trained("unigram", SYMBOLS), Bytes(SYMBOLS)):
        ids = data.draw(some.lists(some.integers(0, tokenizer.vocab_size - 1)))
        assert not {"\r", "\n"} & set(tokenizer.decode(ids))


def symbols_among(ids: list[int]) -> list[str]:
    return [SYMBOLS[each - EOS - 1] for each in ids if EOS < each <= EOS + len(SYMBOLS)]


def symbols_in(text: str) -> list[str]:
    """From left to right, the longest first: by looking, not by pattern."""
    found, at = [], 0
    while at < len(text):
        here = max((symbol for symbol in SYMBOLS if text.startswith(symbol, at)), key=len, default="")
        found += [here] if here else []
        at += len(here) or 1
    return found


@cache
def trained(kind: Any, symbols: tuple[str, ...] = ()) -> SentencePiece:
    return SentencePiece.train(MIXED, 300, kind, symbols)


@cache
def small_words() -> Words:
    return Words.build(MIXED)


@cache
def small_characters() -> Characters:
    return Characters.build(MIXED)
