"""Characters: one id per code point."""

import pytest
from error_codes import has_code

from attendo.errors import DataError, UsageError
from attendo.text import BOS, EOS, UNK, Characters, Tokenizer


def test_every_code_point_is_one_id() -> None:
    characters = Characters.build(["e\u0301猫 👨\u200d👩"])
    assert len(characters.encode("e\u0301猫 👨\u200d👩")) == 7
    assert UNK not in characters.encode("猫e 👩")


def test_ids_follow_frequency_and_then_the_character() -> None:
    characters = Characters.build(["cab", "cb", "c"])
    assert characters.pieces([4, 5, 6]) == ["c", "b", "a"]
    assert characters == Characters.build(["c", "bc", "bac"])


def test_limit_counts_control_pieces() -> None:
    characters = Characters.build(["cab", "cb", "c"], max_size=6)
    assert characters.vocab_size == 6
    assert characters.unknown("abba") == ["a", "a"]


def test_unknown_characters_decode_to_a_placeholder() -> None:
    characters = Characters.build(["ab"])
    assert characters.decode([BOS, *characters.encode("axb"), EOS]) == "a⁇b"


def test_pieces_show_spaces_and_control_ids() -> None:
    characters = Characters.build(["a \n▁"])
    ids = [BOS, *characters.encode("a \n▁?"), EOS]
    assert characters.pieces(ids) == ["<s>", "a", "␣", "\\n", "▁", "<unk>", "</s>"]


def test_a_leading_space_is_kept() -> None:
    characters = Characters.build([" a"])
    assert characters.decode(characters.encode(" a")) == " a"


def test_an_id_outside_the_vocabulary_raises_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", token_id=5, last=4)):
        Characters.build(["a"]).decode([5])


def test_no_text_raises_data_error() -> None:
    with pytest.raises(DataError, check=has_code("vocabulary_text_empty")):
        Characters.build([])


def test_characters_are_a_tokenizer() -> None:
    assert isinstance(Characters.build(["a"]), Tokenizer)
