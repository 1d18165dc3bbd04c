"""The vocabulary counts control pieces, but text never maps to them."""

import pytest
from error_codes import has_code

from attendo.errors import DataError
from attendo.text import CONTROL_PIECES, UNK
from attendo.text.characters import WhitespaceTokenizer
from attendo.text.vocabulary import select_pieces


def test_control_pieces_are_counted_but_not_found() -> None:
    tokenizer = WhitespaceTokenizer(("a", "b"))
    text = " ".join([*CONTROL_PIECES, "b"])
    assert tokenizer.vocab_size == 6
    assert tokenizer.encode(text) == [UNK, UNK, UNK, UNK, 5]
    assert tokenizer.unknown(text) == list(CONTROL_PIECES)


def test_an_entry_is_found_by_its_id() -> None:
    assert WhitespaceTokenizer(("a", "b")).pieces([5]) == ["b"]


def test_required_pieces_come_first_and_once() -> None:
    assert select_pieces(["a", "b", "b", "a", "z", "a"], max_size=None, required=("z",)) == ("z", "a", "b")


def test_no_pieces_raise_data_error() -> None:
    with pytest.raises(DataError, check=has_code("vocabulary_text_empty")):
        select_pieces([], max_size=None)
