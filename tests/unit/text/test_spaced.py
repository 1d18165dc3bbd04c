"""Spaced: pieces that somebody has set apart already."""

from pathlib import Path

import pytest
from error_codes import has_code

from attendo.errors import ModelError
from attendo.text import BOS, EOS, UNK, Tokenizer, load_tokenizer
from attendo.text.characters import WhitespaceTokenizer


def test_a_piece_is_what_stands_between_spaces() -> None:
    spaced = WhitespaceTokenizer.build(["t͡ʃ aː ˧˨ ʔ", "k̟̚ aː"])
    assert spaced.pieces(spaced.encode("aː k̟̚ ˧˨")) == ["aː", "k̟̚", "˧˨"]
    assert spaced.vocab_size == 4 + 5


def test_text_comes_back_with_one_space_between_pieces() -> None:
    spaced = WhitespaceTokenizer.build(["a b c"])
    assert spaced.decode([BOS, *spaced.encode("  c   a\tx "), EOS]) == "c a ⁇"
    assert spaced.unknown("a x y") == ["x", "y"]
    assert spaced.encode("x") == [UNK]


def test_a_symbol_is_a_piece_wherever_it_stands() -> None:
    spaced = WhitespaceTokenizer.build(["a b"], symbols=["<turn>"])
    assert spaced.pieces(spaced.encode("a<turn>b <turn>")) == ["a", "<turn>", "b", "<turn>"]


def test_what_is_saved_loads_as_it_was(tmp_path: Path) -> None:
    spaced = WhitespaceTokenizer.build(["˧˨ a", "▁ \\n"], symbols=["<turn>"])
    spaced.save(tmp_path, "target")
    assert load_tokenizer(tmp_path, "target") == spaced
    assert isinstance(spaced, Tokenizer)


def test_a_piece_with_a_space_in_a_file_is_refused(tmp_path: Path) -> None:
    (path,) = WhitespaceTokenizer.build(["ab"]).save(tmp_path, "target")
    path.write_text(path.read_text("utf-8").replace('"ab"', '"a b"'), encoding="utf-8")
    with pytest.raises(ModelError, check=has_code("tokenizer_piece_invalid", piece="'a b'", kind="spaced")):
        load_tokenizer(tmp_path, "target")
