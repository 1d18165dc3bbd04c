"""Decomposed: characters taken apart on the way in and put together on the way out."""

from pathlib import Path

from attendo.text import UNK, Tokenizer, load_tokenizer
from attendo.text.characters import Characters, NFDCharacters

KOREAN = "한국"  # three letters in each of the two syllables, one of which they share


def test_letters_and_their_marks_are_pieces() -> None:
    decomposed = NFDCharacters.build(["é", KOREAN])
    assert decomposed.pieces(decomposed.encode("é")) == ["e", "\u0301"]
    assert len(decomposed.encode(KOREAN)) == 6
    assert decomposed.encode("한")[-1] != UNK
    assert decomposed.vocab_size == 4 + 2 + 6


def test_what_is_read_in_any_form_is_written_in_one() -> None:
    decomposed = NFDCharacters.build(["é", KOREAN, "x"])
    assert decomposed.decode(decomposed.encode("e\u0301x" + KOREAN)) == "éx" + KOREAN
    assert decomposed.encode("e\u0301") == decomposed.encode("é")
    assert decomposed.unknown("éñ") == ["n", "\u0303"]


def test_symbols_are_not_taken_apart() -> None:
    decomposed = NFDCharacters.build(["é"], symbols=["<é>"])
    assert decomposed.pieces(decomposed.encode("<é>é")) == ["<é>", "e", "\u0301"]


def test_it_loads_as_it_was_and_is_no_plain_characters(tmp_path: Path) -> None:
    decomposed = NFDCharacters.build(["é"], symbols=["<x>"])
    decomposed.save(tmp_path, "source")
    loaded = load_tokenizer(tmp_path, "source")
    assert loaded == decomposed
    assert type(loaded) is NFDCharacters
    assert loaded != Characters.build(["e\u0301"], symbols=["<x>"])
    assert isinstance(loaded, Tokenizer)
