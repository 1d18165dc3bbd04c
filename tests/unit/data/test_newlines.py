"""Line breaks for tokenizers that would read them as spaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.text import Bytes, Characters, SentencePiece, Tokenizer, Words
from attendo.text.newlines import NEWLINE_SYMBOL, NewlineTokenizer
from attendo.text.tokenizer import strip_line_end

LINES = ["the cat sat on the mat", "a dog ran", "the dog sat"] * 5

TOKENIZERS: dict[str, Tokenizer] = {
    "bpe": SentencePiece.train(LINES, 300, "bpe", (NEWLINE_SYMBOL,)),
    "unigram": SentencePiece.train(LINES, 300, "unigram", (NEWLINE_SYMBOL,)),
    "words": Words.build(LINES, symbols=(NEWLINE_SYMBOL,)),
    "bytes": Bytes((NEWLINE_SYMBOL,)),
    "characters": Characters.build(["the cat sat on a dog ran m\n"]),
}

words = st.sampled_from([" the", " cat", "\ndog", " ", "\n", "\n\n", " sat", " mat \n "])


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(st.lists(words, max_size=12))
def test_text_keeps_its_line_breaks(kind: str, parts: list[str]) -> None:
    tokenizer, text = NewlineTokenizer(TOKENIZERS[kind]), "".join(parts)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_many([text]) == [tokenizer.encode(text)]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_words_at_line_starts_have_the_same_ids(kind: str) -> None:
    tokenizer = NewlineTokenizer(TOKENIZERS[kind])
    line = tokenizer.encode("\n")
    assert tokenizer.pieces(line) == [NEWLINE_SYMBOL]
    assert tokenizer.encode("cat\nthe dog") == [*tokenizer.encode("cat"), *line, *tokenizer.encode("the dog")]
    assert tokenizer.encode("\nthe dog\n\nsat") == [
        *line,
        *tokenizer.encode("the dog"),
        *line,
        *line,
        *tokenizer.encode("sat"),
    ]


def test_tokenizers_that_keep_newlines_use_no_symbol() -> None:
    plain = TOKENIZERS["characters"]
    assert NewlineTokenizer(plain).encode("the\ncat") == plain.encode("the\ncat")
    spelled = Characters.build([NEWLINE_SYMBOL, "\n"])
    assert NewlineTokenizer(spelled).decode(spelled.encode(f"{NEWLINE_SYMBOL}\n")) == f"{NEWLINE_SYMBOL}\n"


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_crlf_and_lf_give_the_same_ids(kind: str) -> None:
    tokenizer = NewlineTokenizer(TOKENIZERS[kind])
    assert tokenizer.encode("the cat\r\n\r\nsat") == tokenizer.encode("the cat\n\nsat")
    assert tokenizer.unknown("the cat\r\n") == []
    assert tokenizer.encode_many(["cat\r\n"]) == tokenizer.encode_many(["cat\n"])


def test_strip_line_end_removes_the_line_end() -> None:
    assert [strip_line_end(text) for text in ("a b\n", "a b\r\n", "a b\r", "a\r\nb", " a ")] == [
        *["a b"] * 3,
        "a\nb",
        " a ",
    ]


def test_other_methods_delegate_to_the_inner_tokenizer() -> None:
    inner = TOKENIZERS["words"]
    tokenizer = NewlineTokenizer(inner)
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.symbols) == ("words", inner.vocab_size, (NEWLINE_SYMBOL,))
    assert tokenizer.unknown("the\nfox") == ["fox"]
    assert tokenizer == NewlineTokenizer(Words.build(LINES, symbols=(NEWLINE_SYMBOL,)))
