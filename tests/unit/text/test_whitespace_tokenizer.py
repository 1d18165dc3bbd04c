"""The whitespace tokenizer: text that is already separated into pieces."""

from pathlib import Path

import pytest
from error_codes import has_code

from attendo.errors import ModelError
from attendo.text import BOS, EOS, UNK, Tokenizer, load_tokenizer
from attendo.text.characters import WhitespaceTokenizer


def test_pieces_are_separated_by_spaces() -> None:
    tokenizer = WhitespaceTokenizer.build(["t͡ʃ aː ˧˨ ʔ", "k̟̚ aː"])
    assert tokenizer.pieces(tokenizer.encode("aː k̟̚ ˧˨")) == ["aː", "k̟̚", "˧˨"]
    assert tokenizer.vocab_size == 4 + 5


def test_decode_puts_one_space_between_pieces() -> None:
    tokenizer = WhitespaceTokenizer.build(["a b c"])
    assert tokenizer.decode([BOS, *tokenizer.encode("  c   a\tx "), EOS]) == "c a ⁇"
    assert tokenizer.unknown("a x y") == ["x", "y"]
    assert tokenizer.encode("x") == [UNK]


def test_a_symbol_is_a_piece_at_any_position() -> None:
    tokenizer = WhitespaceTokenizer.build(["a b"], symbols=["<turn>"])
    assert tokenizer.pieces(tokenizer.encode("a<turn>b <turn>")) == ["a", "<turn>", "b", "<turn>"]


def test_a_saved_tokenizer_loads_equal(tmp_path: Path) -> None:
    tokenizer = WhitespaceTokenizer.build(["˧˨ a", "▁ \\n"], symbols=["<turn>"])
    tokenizer.save(tmp_path, "target")
    assert load_tokenizer(tmp_path, "target") == tokenizer
    assert isinstance(tokenizer, Tokenizer)


def test_a_stored_piece_with_a_space_is_rejected(tmp_path: Path) -> None:
    (path,) = WhitespaceTokenizer.build(["ab"]).save(tmp_path, "target")
    path.write_text(path.read_text("utf-8").replace('"ab"', '"a b"'), encoding="utf-8")
    with pytest.raises(ModelError, check=has_code("tokenizer_piece_invalid", piece="'a b'", kind="spaced")):
        load_tokenizer(tmp_path, "target")
