"""The files of a tokenizer: what is written, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attendo.errors import ModelError
from attendo.text import Bytes, Characters, SentencePiece, Tokenizer, Words, load_tokenizer

TEXT = 'a "quoted" \\ word ▁ \\▁ a▁b\ttab  two 猫 <pad> \u2028 \x00'
SUBWORDS = SentencePiece.train([TEXT], 300)
TOKENIZERS: list[Tokenizer] = [Words.build([TEXT]), Characters.build([TEXT]), Bytes(), SUBWORDS]
GOOD = {"format": "attendo.tokenizer", "version": 1, "kind": "words"}
CONTROLS = ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda tokenizer: tokenizer.kind)
def test_a_saved_tokenizer_comes_back_equal(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = tokenizer.save(tmp_path, "source")
    assert sorted(paths) == sorted(tmp_path.iterdir())
    loaded = load_tokenizer(tmp_path, "source")
    assert loaded == tokenizer
    assert loaded.encode(TEXT) == tokenizer.encode(TEXT)
    assert loaded.decode(loaded.encode(TEXT)) == TEXT


def test_the_file_of_words_is_readable(tmp_path: Path) -> None:
    (path,) = Words.build(["cat ▁ cat?"]).save(tmp_path, "target")
    assert path.name == "target.tokenizer.json"
    assert path.read_text(encoding="utf-8").splitlines() == [
        *("{", '"format": "attendo.tokenizer",', '"version": 1,', '"kind": "words",', '"pieces": ['),
        *('  "<pad>",', '  "<unk>",', '  "<s>",', '  "</s>",', '  "▁",', '  "▁cat",', '  "▁\\\\▁",', '  "?"'),
        *("]", "}"),
    ]


def test_the_file_with_symbols_is_readable(tmp_path: Path) -> None:
    (path,) = Words.build(["<2de> cat"], symbols=["<2de>"]).save(tmp_path, "target")
    assert path.read_text(encoding="utf-8").splitlines() == [
        *("{", '"format": "attendo.tokenizer",', '"version": 1,', '"kind": "words",'),
        *('"symbols": [', '  "<2de>"', "],", '"pieces": ['),
        *('  "<pad>",', '  "<unk>",', '  "<s>",', '  "</s>",', '  "<2de>",', '  "▁",', '  "▁cat"', "]", "}"),
    ]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda tokenizer: tokenizer.kind)
def test_a_file_without_symbols_does_not_speak_of_them(tokenizer: Tokenizer, tmp_path: Path) -> None:
    header, *_ = tokenizer.save(tmp_path, "source")
    assert "symbols" not in header.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "symbols", "pieces", "fault"),
    [
        ("bytes", "<x>", None, '"symbols" must be a list of strings'),
        ("bytes", [1], None, '"symbols" must be a list of strings'),
        ("bytes", ["<x>", "<x>"], None, "'<x>' stands there twice"),
        ("bytes", ["</s>"], None, "'</s>' is a control piece"),
        ("words", ["<x>"], [*CONTROLS, "▁", "<x>"], "its symbols must be the first pieces after </s>"),
        ("characters", ["<x>"], [*CONTROLS, "a"], "its symbols must be the first pieces after </s>"),
        ("characters", ["<x>"], [*CONTROLS, "<x>", "<y>"], "'<y>' cannot be a piece"),
        ("characters", [], [*CONTROLS, "<x>"], "'<x>' cannot be a piece"),
    ],
)
def test_damaged_symbols_are_named(kind: str, symbols: object, pieces: object, fault: str, tmp_path: Path) -> None:
    header = {**GOOD, "kind": kind, "symbols": symbols} | ({} if pieces is None else {"pieces": pieces})
    (tmp_path / "source.tokenizer.json").write_text(json.dumps(header))
    with pytest.raises(ModelError, match=fault) as caught:
        load_tokenizer(tmp_path, "source")
    assert str(tmp_path / "source.tokenizer.json") in str(caught.value)


def test_files_of_different_tokenizers_do_not_mix(tmp_path: Path) -> None:
    SUBWORDS.save(tmp_path, "source")
    with_symbols = SentencePiece.train([TEXT], 300, "bpe", ["<x>"])
    (tmp_path / "source.spm").write_bytes(with_symbols.model)
    with pytest.raises(ModelError, match=r"source\.spm: its symbols are not those of source\.tokenizer\.json"):
        load_tokenizer(tmp_path, "source")


def test_sentencepiece_has_two_files(tmp_path: Path) -> None:
    paths = SUBWORDS.save(tmp_path, "joint")
    assert [path.name for path in paths] == ["joint.tokenizer.json", "joint.spm"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"source\.tokenizer\.json cannot be read: No such file"):
        load_tokenizer(tmp_path, "source")
    SUBWORDS.save(tmp_path, "source")
    (tmp_path / "source.spm").unlink()
    with pytest.raises(ModelError, match=r"source\.spm cannot be read: No such file"):
        load_tokenizer(tmp_path, "source")


@pytest.mark.parametrize("content", [b"", b"garbage", SUBWORDS.model[:-3]])
def test_a_damaged_sentencepiece_model_is_named(content: bytes, tmp_path: Path) -> None:
    SUBWORDS.save(tmp_path, "source")
    (tmp_path / "source.spm").write_bytes(content)
    with pytest.raises(ModelError, match=r"source\.spm: .*; ") as caught:
        load_tokenizer(tmp_path, "source")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not a tokenizer"),
        (b"{", "is not a tokenizer"),
        (b"\xff\xfe", "is not a tokenizer"),
        (b"[" * 100_000, "is not a tokenizer"),
        (b"[]", '"format" must be'),
        (b'{"format": "other"}', '"format" must be'),
        (json.dumps({**GOOD, "version": 2}).encode(), "has version 2"),
        (json.dumps({**GOOD, "version": True}).encode(), "has version True"),
        (json.dumps({**GOOD, "kind": "magic"}).encode(), "unknown kind 'magic': this attendo knows words"),
        (json.dumps({**GOOD, "kind": None}).encode(), "unknown kind None"),
        (json.dumps({**GOOD, "extra": 1}).encode(), "unknown key 'extra'"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(content: bytes, fault: str, tmp_path: Path) -> None:
    (tmp_path / "source.tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=fault) as caught:
        load_tokenizer(tmp_path, "source")
    assert str(tmp_path / "source.tokenizer.json") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "pieces", "fault"),
    [
        ("words", None, "must be a list of strings"),
        ("words", [*CONTROLS, "▁", 7], "must be a list of strings"),
        ("words", ["▁", "▁cat"], "must begin with <pad> <unk> <s> </s>"),
        ("words", [*CONTROLS[:3], "▁"], "must begin with <pad> <unk> <s> </s>"),
        ("words", [*CONTROLS, "▁", "▁cat", "▁cat"], "the piece ' cat' stands in it twice"),
        ("words", [*CONTROLS, "▁", " "], "the piece ' ' stands in it twice"),
        ("words", [*CONTROLS, "▁", "<s>"], "the piece '<s>' stands in it twice"),
        ("words", [*CONTROLS, "▁", ""], "'' cannot be a piece"),
        ("words", [*CONTROLS, "▁", "a b"], "'a b' cannot be a piece"),
        ("words", [*CONTROLS, "▁", "\t\t"], "cannot be a piece"),
        ("words", [*CONTROLS, "▁", "\ud800"], "half of a surrogate pair"),
        ("words", [*CONTROLS, "▁cat"], "the piece ' ' is missing"),
        ("characters", [*CONTROLS, "ab"], "'ab' cannot be a piece of a characters tokenizer"),
        ("characters", [*CONTROLS, "a", "a"], "the piece 'a' stands in it twice"),
    ],
)
def test_a_damaged_list_of_pieces_is_named(kind: str, pieces: object, fault: str, tmp_path: Path) -> None:
    (tmp_path / "source.tokenizer.json").write_text(json.dumps({**GOOD, "kind": kind, "pieces": pieces}))
    with pytest.raises(ModelError, match=fault):
        load_tokenizer(tmp_path, "source")


def test_importing_text_loads_neither_sentencepiece_nor_torch() -> None:
    code = "import sys, attendo.text; print([name for name in ('sentencepiece', 'torch') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
