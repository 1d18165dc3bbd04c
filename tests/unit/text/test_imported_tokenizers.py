"""Tokenizers of imported models behave like all other tokenizers."""

from pathlib import Path

import pytest
from error_codes import ErrorCheck, has_code
from foreign_tokenizers import piece_names, pieces_model, some_lines, strange_texts, write_bart

from attendo.errors import ModelError, UsageError
from attendo.text import BOS, EOS, PAD, UNK, Tokenizer, load_tokenizer
from attendo.text.byte_level_bpe import ByteLevelBPE, read_merges
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text_model.constraints import encode_banned_phrases, encode_prefix

SYMBOLS = ("__en__", "__de__")
MODEL = pieces_model(some_lines(), "bpe")
LINE = some_lines()[0]


@pytest.fixture(scope="module")
def pieces() -> ImportedSentencePiece:
    return ImportedSentencePiece(MODEL, (*SYMBOLS, *piece_names(MODEL)[3:]), SYMBOLS)


@pytest.fixture(scope="module")
def byte_level_bpe(tmp_path_factory: pytest.TempPathFactory) -> ByteLevelBPE:
    folder = tmp_path_factory.mktemp("pairs")
    vocabulary = write_bart(folder)
    return ByteLevelBPE(read_merges(folder / "merges.txt"), (*SYMBOLS, *list(vocabulary)[4:-1]), SYMBOLS)


@pytest.fixture(params=["pieces", "byte_level_bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)


def test_imported_tokenizers_implement_the_protocol(tokenizer: Tokenizer) -> None:
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.encode("") == []
    assert tokenizer.encode_many([LINE, ""]) == [tokenizer.encode(LINE), []]


def test_known_words_survive_encode_and_decode(tokenizer: Tokenizer) -> None:
    for line in some_lines()[:30]:
        ids = tokenizer.encode(line)
        if UNK not in ids:
            assert tokenizer.decode(ids) == line


def test_text_never_encodes_to_pad_bos_or_eos(tokenizer: Tokenizer) -> None:
    for text in [*strange_texts(), "</s> <s> <pad>", "\n", "▁", "\x00"]:
        assert not {PAD, BOS, EOS} & set(tokenizer.encode(text)), text


def test_control_ids_and_symbols_have_no_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(LINE)
    assert tokenizer.decode([BOS, EOS + 1, *ids, EOS, PAD]) == tokenizer.decode(ids)
    assert tokenizer.pieces([PAD, UNK, BOS, EOS, EOS + 2]) == ["<pad>", "<unk>", "<s>", "</s>", "__de__"]


def test_symbols_are_one_id_at_any_position(tokenizer: Tokenizer) -> None:
    assert tokenizer.symbols == SYMBOLS
    assert tokenizer.encode(f"__de__{LINE}")[0] == EOS + 2
    assert tokenizer.encode("__en__") == [EOS + 1]


def test_unknown_characters_are_reported(pieces: ImportedSentencePiece, byte_level_bpe: ByteLevelBPE) -> None:
    assert pieces.unknown("猫") == ["猫"]
    assert UNK in pieces.encode("猫")
    assert pieces.decode([UNK]) == "⁇"
    assert pieces.unknown(LINE) == []
    assert byte_level_bpe.unknown("猫") == []
    assert byte_level_bpe.decode([UNK]) == "⁇"


def test_line_breaks_are_not_in_the_decoded_text(tokenizer: Tokenizer) -> None:
    assert "\n" not in tokenizer.decode(tokenizer.encode("a\nb\r\nc"))


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_rejected(tokenizer: Tokenizer, wrong: int) -> None:
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary")):
        tokenizer.decode([wrong])


def test_an_unpaired_surrogate_is_rejected(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, check=has_code("text_unpaired_surrogate")):
        tokenizer.encode("\ud800")


def test_incomplete_characters_are_shown_as_replacement_characters(byte_level_bpe: ByteLevelBPE) -> None:
    ids = byte_level_bpe.encode("猫")
    assert len(ids) == 3
    assert byte_level_bpe.pieces(ids) == ["\ufffd"] * 3
    assert byte_level_bpe.decode(ids) == "猫"


def test_encode_prefix_drops_a_trailing_space(tokenizer: Tokenizer) -> None:
    assert encode_prefix(tokenizer, f"{LINE} ") == tuple(tokenizer.encode(LINE))


def test_a_word_of_byte_level_bpe_is_banned_with_its_space(byte_level_bpe: ByteLevelBPE) -> None:
    """Without the space, the same pieces may end a longer word."""
    word = LINE.split()[1]
    assert encode_banned_phrases(byte_level_bpe, [word]) == (tuple(byte_level_bpe.encode(f" {word}")),)


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("target.spm", b"\xff", has_code("sentencepiece_file_invalid")),
        ("target.spm", None, has_code("model_file_unreadable")),
        ("target.tokenizer.json", b"{}", has_code("tokenizer_format_unknown")),
    ],
)
def test_damaged_sentencepiece_files_are_rejected(
    pieces: ImportedSentencePiece, tmp_path: Path, name: str, content: bytes | None, error: ErrorCheck
) -> None:
    pieces.save(tmp_path, "target")
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, check=error):
        load_tokenizer(tmp_path, "target")


def test_damaged_merges_are_rejected(byte_level_bpe: ByteLevelBPE, tmp_path: Path) -> None:
    byte_level_bpe.save(tmp_path, "target")
    (tmp_path / "target.merges.txt").write_text("a b c\n")
    with pytest.raises(ModelError, check=has_code("merge_not_a_pair", line="'a b c'")):
        load_tokenizer(tmp_path, "target")
