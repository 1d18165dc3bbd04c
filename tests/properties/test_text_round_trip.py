"""decode(encode(text)) is text, and no text encodes to a control id."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.text import BOS, EOS, PAD, UNK, Bytes, Characters, SentencePiece, Tokenizer, Words

CONTROL_LIKE = ["<pad>", "<unk>", "<s>", "</s>", "<0x0A>", "<0xE2>", "⁇", " ⁇ ", "▁", "▅", "\\▁"]
FRAGMENTS = [
    *CONTROL_LIKE,
    *("cat", "don't", "it’s", "'", "?", "...", " ", "  ", "\t", "\u00a0", "\u3000", "\u2028", "\x00", "3.14", "_"),
    *("猫", "自然", "？", "👩", "👨\u200d👩", "❤\ufe0f", "🇫🇷", "שלום", "مرحبا", "\u200f", "می\u200cخواهم"),
    *("e\u0301", "\u0301", "नमस्ते", "ß", "İ", "\ufeff", "\ufffd", "\U000e0100"),
]
# Some contain or overlap others, or parts of control pieces and words.
SYMBOLS = ("<2de>", "<2", "de>x", "ca", "猫", "s>", "☃")
KNOWN_TEXT = st.lists(st.sampled_from(FRAGMENTS)).map("".join)
TAGGED_TEXT = st.lists(st.sampled_from([*FRAGMENTS, *SYMBOLS, " ", "x"])).map("".join)
# Line breaks are read as spaces. Half a surrogate pair is not text.
ANY_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
MIXED = ["the cat sat on the mat", "I love natural language processing", "你喜欢猫吗？", "</s> a<pad> 3 <0x0A>"] * 3


@given(ANY_LINE)
def test_joined_pieces_are_the_text(text: str) -> None:
    assert "".join(Words.split(text))[1:] == text


@given(KNOWN_TEXT)
def test_words_round_trip(text: str) -> None:
    tokenizer = Words.build([text, "a"])
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert tokenizer.unknown(text) == []


@given(KNOWN_TEXT)
def test_characters_round_trip(text: str) -> None:
    tokenizer = Characters.build(FRAGMENTS)
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS


@given(TAGGED_TEXT)
def test_words_and_characters_round_trip_symbols(text: str) -> None:
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
def test_bytes_round_trip_any_line(text: str) -> None:
    tokenizer = Bytes(SYMBOLS)
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert symbols_among(ids) == symbols_in(text)
    assert len(tokenizer.pieces(ids)) == len(ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=TAGGED_TEXT | ANY_LINE)
def test_sentencepiece_round_trips_symbols(kind: Any, text: str) -> None:
    tokenizer = trained(kind, SYMBOLS)
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert symbols_among(ids) == symbols_in(text)


@given(st.lists(TAGGED_TEXT | ANY_LINE))
def test_encode_many_equals_single_calls(texts: list[str]) -> None:
    tokenizers = [trained("bpe"), trained("unigram", SYMBOLS), small_words(), small_characters(), Bytes(SYMBOLS)]
    for tokenizer in tokenizers:
        assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=KNOWN_TEXT | ANY_LINE)
def test_sentencepiece_round_trips_any_line(kind: Any, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert min(ids, default=EOS + 1) > EOS
    assert tokenizer.unknown(text) == []
    assert len(tokenizer.pieces(ids)) == len(ids)


@given(KNOWN_TEXT | ANY_LINE)
def test_no_text_encodes_to_a_control_id(text: str) -> None:
    tokenizers: list[Tokenizer] = [small_words(), small_characters()]
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        assert not {PAD, BOS, EOS} & set(ids)
        assert ids.count(UNK) == len(tokenizer.unknown(text))


@given(st.data())
def test_no_ids_decode_to_a_line_break(data: st.DataObject) -> None:
    for tokenizer in (trained("bpe"), trained("unigram", SYMBOLS), Bytes(SYMBOLS)):
        ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
        assert not {"\r", "\n"} & set(tokenizer.decode(ids))


def symbols_among(ids: list[int]) -> list[str]:
    return [SYMBOLS[each - EOS - 1] for each in ids if EOS < each <= EOS + len(SYMBOLS)]


def symbols_in(text: str) -> list[str]:
    """From left to right, the longest match first, without regular expressions."""
    found, position = [], 0
    while position < len(text):
        match = max((symbol for symbol in SYMBOLS if text.startswith(symbol, position)), key=len, default="")
        found += [match] if match else []
        position += len(match) or 1
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
