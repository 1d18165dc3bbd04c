"""Line breaks for tokenizers that would read them as spaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.line_breaks import LINE, keeping_line_breaks
from attendo.text import Bytes, Characters, SentencePiece, Tokenizer, Words

LINES = ["the cat sat on the mat", "a dog ran", "the dog sat"] * 5

TOKENIZERS: dict[str, Tokenizer] = {
    "bpe": SentencePiece.train(LINES, 300, "bpe", (LINE,)),
    "unigram": SentencePiece.train(LINES, 300, "unigram", (LINE,)),
    "words": Words.build(LINES, symbols=(LINE,)),
    "bytes": Bytes((LINE,)),
    "characters": Characters.build(["the cat sat on a dog ran m\n"]),
}

words = st.sampled_from([" the", " cat", "\ndog", " ", "\n", "\n\n", " sat", " mat \n "])


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(st.lists(words, max_size=12))
def test_text_comes_back_with_its_line_breaks(kind: str, parts: list[str]) -> None:
    tokenizer, text = keeping_line_breaks(TOKENIZERS[kind]), "".join(parts)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_many([text]) == [tokenizer.encode(text)]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_a_word_is_the_same_at_the_beginning_of_a_line_and_inside_it(kind: str) -> None:
    tokenizer = keeping_line_breaks(TOKENIZERS[kind])
    line = tokenizer.encode("\n")
    assert tokenizer.pieces(line) == [LINE]
    assert tokenizer.encode("cat\nthe dog") == [*tokenizer.encode("cat"), *line, *tokenizer.encode("the dog")]
    assert tokenizer.encode("\nthe dog\n\nsat") == [
        *line,
        *tokenizer.encode("the dog"),
        *line,
        *line,
        *tokenizer.encode("sat"),
    ]


def test_a_tokenizer_without_the_symbol_stays_as_it_is() -> None:
    for tokenizer in (TOKENIZERS["characters"], Words.build(LINES)):
        assert keeping_line_breaks(tokenizer) is tokenizer


def test_all_else_is_told_by_the_tokenizer_inside() -> None:
    inside = TOKENIZERS["words"]
    tokenizer = keeping_line_breaks(inside)
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.symbols) == ("words", inside.vocab_size, (LINE,))
    assert tokenizer.unknown("the\nfox") == ["fox"]
    assert tokenizer == keeping_line_breaks(Words.build(LINES, symbols=(LINE,)))
