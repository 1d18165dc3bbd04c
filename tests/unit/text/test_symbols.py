"""Symbols: one id each in every kind of tokenizer, at any position, and unchanged by decode."""

from pathlib import Path

import pytest
from error_codes import ErrorCheck, has_code

from attendo.errors import UsageError
from attendo.text import BOS, EOS, Bytes, Characters, SentencePiece, Tokenizer, Words, load_tokenizer
from attendo.text.tokenizer import split_at_symbols, validate_special_tokens

SYMBOLS = ("<2de>", "<2", "ab", "<sep>")
TEXTS = ["the cat sat on the mat", "<2de> xa bx xa bx xabx<sep>the </s> <pad>"] * 5
TOKENIZERS: list[Tokenizer] = [
    Words.build(TEXTS, symbols=SYMBOLS),
    Characters.build(TEXTS, symbols=SYMBOLS),
    Bytes(SYMBOLS),
    SentencePiece.train(TEXTS, 320, "bpe", SYMBOLS),
    SentencePiece.train(TEXTS, 295, "unigram", SYMBOLS),
]
NAMES = ["words", "characters", "bytes", "bpe", "unigram"]
every_kind = pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=NAMES)


@every_kind
def test_a_symbol_is_one_id_after_the_control_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.symbols == SYMBOLS
    assert [tokenizer.encode(symbol) for symbol in SYMBOLS] == [[4], [5], [6], [7]]
    assert tokenizer.pieces([4, 5, 6, 7]) == list(SYMBOLS)


@every_kind
def test_a_symbol_inside_a_word_is_not_split(tokenizer: Tokenizer) -> None:
    for text in ("xabx", "x ab x", "ab▁ab", "the<2deab"):
        ids = tokenizer.encode(text)
        assert ids.count(6) == text.count("ab")
        assert tokenizer.decode(ids).count("ab") == text.count("ab")


def test_a_unigram_model_does_not_prefer_its_pieces_to_a_symbol() -> None:
    tokenizer = SentencePiece.train(["xa xa xa bx bx bx xa bx qq rr"] * 5, 330, "unigram", ["ab"])
    assert tokenizer.pieces(tokenizer.encode("xa bx")) == ["xa", "bx"]
    assert tokenizer.encode("xabx").count(4) == 1


@every_kind
def test_the_longest_matching_symbol_is_used(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<2de><2<2de>") == [4, 5, 4]


@every_kind
@pytest.mark.parametrize("text", ["<2de> the cat", " <2de> the", "<2de>", "<2de><2de> ", "the <sep> cat", " ab", "  "])
def test_a_text_with_symbols_decodes_unchanged(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode([BOS, *tokenizer.encode(text), EOS]) == text


@every_kind
def test_a_tag_before_a_text_adds_one_id(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<2de> the cat")[0] == 4
    untagged = tokenizer.encode("the cat")
    tagged = tokenizer.encode("<2de> the cat")
    spaced = isinstance(tokenizer, Characters | Bytes)  # these add no space before a text
    assert tagged[2 if spaced else 1 :] == untagged


@every_kind
def test_control_pieces_in_a_text_are_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<2de> </s> <pad>")
    assert min(ids) > EOS
    assert tokenizer.decode(ids) == "<2de> </s> <pad>"


@every_kind
def test_symbols_are_saved_in_the_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "source")
    loaded = load_tokenizer(tmp_path, "source")
    assert loaded == tokenizer
    assert loaded.symbols == SYMBOLS
    assert loaded.encode("<2de> xabx") == tokenizer.encode("<2de> xabx")
    assert '"symbols": [\n  "<2de>",\n' in (tmp_path / "source.tokenizer.json").read_text("utf-8")


@every_kind
def test_encode_many_equals_encode(tokenizer: Tokenizer) -> None:
    texts = ["the cat", "", "<2de> the", "▁", "ab▁ab", "a\nb", ""]
    assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_many([]) == []


def test_symbols_count_in_the_size() -> None:
    assert Words.build(TEXTS, max_size=10, symbols=SYMBOLS).vocab_size == 10
    with pytest.raises(UsageError, check=has_code("vocabulary_too_small", size=9, minimum=10)):
        Words.build(TEXTS, max_size=9, symbols=SYMBOLS)
    assert Characters.build(TEXTS, max_size=9, symbols=SYMBOLS).vocab_size == 9
    with pytest.raises(UsageError, check=has_code("vocabulary_below_character_count", size=100)):
        SentencePiece.train(TEXTS, 100, "bpe", SYMBOLS)


def test_unseen_symbols_have_ids() -> None:
    for tokenizer in (Words.build(["a"], symbols=["<x>"]), Characters.build(["a"], symbols=["<x>"])):
        assert tokenizer.encode("<x>") == [4]
        assert tokenizer.unknown("<x>b") == ["b"]


def test_the_characters_of_a_symbol_are_not_learnt() -> None:
    assert Characters.build(["<x>a"], symbols=["<x>"]).vocab_size == 6
    assert Words.build(["<x>a"], symbols=["<x>"]).vocab_size == 7


@pytest.mark.parametrize(
    ("symbols", "error"),
    [
        ([""], has_code("symbol_has_whitespace", symbol="''")),
        (["a b"], has_code("symbol_has_whitespace", symbol="'a b'")),
        (["a\u3000"], has_code("symbol_has_whitespace")),
        (["</s>"], has_code("symbol_is_control_piece", symbol="'</s>'")),
        (["<0x0A>"], has_code("symbol_is_byte_piece", symbol="'<0x0A>'")),
        (["a▁"], has_code("symbol_has_reserved_character", symbol="'a▁'")),
        (["a\0"], has_code("symbol_has_reserved_character")),
        (["\ud800"], has_code("symbol_has_reserved_character")),
        (["<x>", "<y>", "<x>"], has_code("symbol_duplicate", symbol="'<x>'")),
        ("<x>", has_code("symbols_not_a_list", value="'<x>'")),
    ],
)
def test_invalid_symbols_are_rejected(symbols: list[str], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        validate_special_tokens(symbols)
    with pytest.raises(UsageError, check=error):
        Bytes(symbols)
    for build in (Words.build, Characters.build):
        with pytest.raises(UsageError, check=error):
            build(["a"], symbols=symbols)
    with pytest.raises(UsageError, check=error):
        SentencePiece.train(["a"], 300, "bpe", symbols)


def test_split_at_symbols_alternates_text_and_symbols() -> None:
    assert split_at_symbols("a<x><y>", ("<x>", "<y>")) == ["a", "<x>", "", "<y>", ""]
    assert split_at_symbols("", ("<x>",)) == [""]
    assert split_at_symbols("<x>", ()) == ["<x>"]


def test_regex_characters_in_symbols_are_literal() -> None:
    assert Bytes([".*", "("]).encode("(.*.") == [5, 4, 6 + 0x2E]
    assert SentencePiece.train(["a"], 300, "bpe", ["a,b", '"', "#"]).encode('"a,b#') == [5, 4, 6]
