"""NFD characters: text is decomposed by encode and composed by decode."""

from pathlib import Path

from attendo.text import UNK, Tokenizer, load_tokenizer
from attendo.text.characters import Characters, NFDCharacters

KOREAN = "한국"  # two syllables of three letters each


def test_letters_and_their_marks_are_separate_pieces() -> None:
    tokenizer = NFDCharacters.build(["é", KOREAN])
    assert tokenizer.pieces(tokenizer.encode("é")) == ["e", "\u0301"]
    assert len(tokenizer.encode(KOREAN)) == 6
    assert tokenizer.encode("한")[-1] != UNK
    assert tokenizer.vocab_size == 4 + 2 + 6


def test_any_normal_form_decodes_to_the_composed_form() -> None:
    tokenizer = NFDCharacters.build(["é", KOREAN, "x"])
    assert tokenizer.decode(tokenizer.encode("e\u0301x" + KOREAN)) == "éx" + KOREAN
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")
    assert tokenizer.unknown("éñ") == ["n", "\u0303"]


def test_symbols_are_not_decomposed() -> None:
    tokenizer = NFDCharacters.build(["é"], symbols=["<é>"])
    assert tokenizer.pieces(tokenizer.encode("<é>é")) == ["<é>", "e", "\u0301"]


def test_a_saved_tokenizer_loads_with_its_own_class(tmp_path: Path) -> None:
    tokenizer = NFDCharacters.build(["é"], symbols=["<x>"])
    tokenizer.save(tmp_path, "source")
    loaded = load_tokenizer(tmp_path, "source")
    assert loaded == tokenizer
    assert type(loaded) is NFDCharacters
    assert loaded != Characters.build(["e\u0301"], symbols=["<x>"])
    assert isinstance(loaded, Tokenizer)
