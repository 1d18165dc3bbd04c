"""Bytes: one id per byte of UTF-8, after the symbols."""

import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, UNK, Bytes, Tokenizer


def test_every_byte_is_one_id_after_the_control_pieces() -> None:
    assert Bytes().vocab_size == 260
    assert Bytes().encode("aé") == [4 + 0x61, 4 + 0xC3, 4 + 0xA9]


def test_symbol_ids_precede_the_bytes() -> None:
    tokenizer = Bytes(["<2de>", "<2fr>"])
    assert tokenizer.vocab_size == 262
    assert tokenizer.encode("<2fr>a<2de>") == [5, 6 + 0x61, 4]


def test_line_breaks_become_spaces_in_encode_and_decode() -> None:
    tokenizer = Bytes()
    assert tokenizer.encode("the\ncat\r") == tokenizer.encode("the cat ")
    assert tokenizer.decode([4 + 0x61, 4 + 0x0A, 4 + 0x62, 4 + 0x0D]) == "a b "


def test_invalid_utf8_decodes_to_replacement_characters() -> None:
    tokenizer = Bytes(["<x>"])
    cat = tokenizer.encode("猫")
    assert tokenizer.decode([*cat[:2], *tokenizer.encode("<x>a"), *cat[1:]]) == "\ufffd<x>a\ufffd\ufffd"


def test_a_control_id_inside_a_character_is_skipped() -> None:
    first, *rest = Bytes().encode("é")
    assert Bytes().decode([BOS, first, PAD, *rest, EOS]) == "é"


def test_unk_decodes_to_a_placeholder() -> None:
    assert Bytes().decode([UNK, *Bytes().encode("a")]) == "⁇a"
    assert Bytes().unknown("猫 \x00") == []


def test_pieces_show_ascii_and_hex_codes() -> None:
    tokenizer = Bytes(["<x>"])
    ids = [BOS, *tokenizer.encode("a <x>é\t"), UNK, EOS, PAD]
    assert tokenizer.pieces(ids) == ["<s>", "a", "␣", "<x>", "<0xC3>", "<0xA9>", "<0x09>", "<unk>", "</s>", "<pad>"]


@pytest.mark.parametrize("wrong", [-1, 260])
def test_an_id_outside_the_vocabulary_raises_usage_error(wrong: int) -> None:
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", last=259, token_id=wrong)):
        Bytes().decode([wrong])
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", token_id=wrong)):
        Bytes().pieces([wrong])


def test_an_unpaired_surrogate_raises_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("text_unpaired_surrogate")):
        Bytes().encode("a\ud800")


def test_bytes_are_a_tokenizer() -> None:
    assert isinstance(Bytes(), Tokenizer)
