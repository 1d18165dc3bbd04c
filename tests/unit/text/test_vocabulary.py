"""The vocabulary counts control pieces, but text never maps to them."""

import pytest
from error_codes import has_code

from attendo.errors import DataError
from attendo.text import CONTROL_PIECES, UNK
from attendo.text.words import Vocabulary, build_vocabulary


def test_control_pieces_are_counted_but_not_found() -> None:
    vocabulary = Vocabulary(("a", "b"))
    assert vocabulary.size == 6
    assert vocabulary.ids([*CONTROL_PIECES, "b"]) == [UNK, UNK, UNK, UNK, 5]
    assert vocabulary.missing([*CONTROL_PIECES, "b"]) == list(CONTROL_PIECES)


def test_an_entry_is_found_by_its_id() -> None:
    assert Vocabulary(("a", "b")).entry(5) == "b"


def test_required_pieces_come_first_and_once() -> None:
    assert build_vocabulary(["a", "b", "b", "a", "z", "a"], max_size=None, required=("z",)).entries == ("z", "a", "b")


def test_no_pieces_raise_data_error() -> None:
    with pytest.raises(DataError, check=has_code("vocabulary_text_empty")):
        build_vocabulary([], max_size=None)
