"""Tokenizer files: their content, and which files are rejected."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from error_codes import ErrorCheck, has_code

from attendo.errors import ModelError
from attendo.text import Bytes, Characters, SentencePiece, Tokenizer, Words, load_tokenizer

TEXT = 'a "quoted" \\ word ▁ \\▁ a▁b\ttab  two 猫 <pad> \u2028 \x00'
SUBWORDS = SentencePiece.train([TEXT], 300)
TOKENIZERS: list[Tokenizer] = [Words.build([TEXT]), Characters.build([TEXT]), Bytes(), SUBWORDS]
GOOD = {"format": "attendo.tokenizer", "version": 1, "kind": "words"}
CONTROLS = ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda tokenizer: tokenizer.kind)
def test_a_saved_tokenizer_loads_equal(tokenizer: Tokenizer, tmp_path: Path) -> None:
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
def test_a_file_without_symbols_has_no_symbols_key(tokenizer: Tokenizer, tmp_path: Path) -> None:
    header, *_ = tokenizer.save(tmp_path, "source")
    assert "symbols" not in header.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "symbols", "pieces", "error"),
    [
        ("bytes", "<x>", None, has_code("tokenizer_symbols_not_strings")),
        ("bytes", [1], None, has_code("tokenizer_symbols_not_strings")),
        ("bytes", ["<x>", "<x>"], None, has_code("tokenizer_symbols_damaged")),
        ("bytes", ["</s>"], None, has_code("tokenizer_symbols_damaged")),
        ("words", ["<x>"], [*CONTROLS, "▁", "<x>"], has_code("tokenizer_symbols_misplaced", piece="</s>")),
        ("characters", ["<x>"], [*CONTROLS, "a"], has_code("tokenizer_symbols_misplaced", piece="</s>")),
        ("characters", ["<x>"], [*CONTROLS, "<x>", "<y>"], has_code("tokenizer_piece_invalid", piece="'<y>'")),
        ("characters", [], [*CONTROLS, "<x>"], has_code("tokenizer_piece_invalid", piece="'<x>'")),
    ],
)
def test_damaged_symbols_raise_an_error_with_the_path(
    kind: str, symbols: object, pieces: object, error: ErrorCheck, tmp_path: Path
) -> None:
    header = {**GOOD, "kind": kind, "symbols": symbols} | ({} if pieces is None else {"pieces": pieces})
    (tmp_path / "source.tokenizer.json").write_text(json.dumps(header))
    with pytest.raises(ModelError, check=error) as caught:
        load_tokenizer(tmp_path, "source")
    assert str(tmp_path / "source.tokenizer.json") in str(caught.value)


def test_files_of_different_tokenizers_are_rejected(tmp_path: Path) -> None:
    SUBWORDS.save(tmp_path, "source")
    with_symbols = SentencePiece.train([TEXT], 300, "bpe", ["<x>"])
    (tmp_path / "source.spm").write_bytes(with_symbols.model)
    with pytest.raises(ModelError, check=has_code("sentencepiece_symbols_mismatch", name="source")):
        load_tokenizer(tmp_path, "source")


def test_sentencepiece_has_two_files(tmp_path: Path) -> None:
    paths = SUBWORDS.save(tmp_path, "joint")
    assert [path.name for path in paths] == ["joint.tokenizer.json", "joint.spm"]


def test_a_missing_file_raises_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, check=has_code("model_file_unreadable")):
        load_tokenizer(tmp_path, "source")
    SUBWORDS.save(tmp_path, "source")
    (tmp_path / "source.spm").unlink()
    with pytest.raises(ModelError, check=has_code("model_file_unreadable")):
        load_tokenizer(tmp_path, "source")


@pytest.mark.parametrize("content", [b"", b"garbage", SUBWORDS.model[:-3]])
def test_a_damaged_sentencepiece_model_raises_model_error(content: bytes, tmp_path: Path) -> None:
    SUBWORDS.save(tmp_path, "source")
    (tmp_path / "source.spm").write_bytes(content)
    with pytest.raises(ModelError, check=has_code("sentencepiece_file_invalid")) as caught:
        load_tokenizer(tmp_path, "source")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", has_code("tokenizer_json_invalid")),
        (b"{", has_code("tokenizer_json_invalid")),
        (b"\xff\xfe", has_code("tokenizer_json_invalid")),
        (b"[" * 100_000, has_code("tokenizer_json_invalid")),
        (b"[]", has_code("tokenizer_format_unknown")),
        (b'{"format": "other"}', has_code("tokenizer_format_unknown")),
        (json.dumps({**GOOD, "version": 2}).encode(), has_code("tokenizer_version_unsupported", found="2")),
        (json.dumps({**GOOD, "version": True}).encode(), has_code("tokenizer_version_unsupported", found="True")),
        (json.dumps({**GOOD, "kind": "magic"}).encode(), has_code("tokenizer_kind_unknown", kind="'magic'")),
        (json.dumps({**GOOD, "kind": None}).encode(), has_code("tokenizer_kind_unknown", kind="None")),
        (json.dumps({**GOOD, "extra": 1}).encode(), has_code("tokenizer_key_unknown", key="'extra'")),
    ],
)
def test_a_file_that_is_not_a_tokenizer_raises_an_error_with_its_path(
    content: bytes, error: ErrorCheck, tmp_path: Path
) -> None:
    (tmp_path / "source.tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, check=error) as caught:
        load_tokenizer(tmp_path, "source")
    assert str(tmp_path / "source.tokenizer.json") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "pieces", "error"),
    [
        ("words", None, has_code("tokenizer_pieces_not_strings")),
        ("words", [*CONTROLS, "▁", 7], has_code("tokenizer_pieces_not_strings")),
        ("words", ["▁", "▁cat"], has_code("tokenizer_control_pieces_missing", pieces="<pad> <unk> <s> </s>")),
        ("words", [*CONTROLS[:3], "▁"], has_code("tokenizer_control_pieces_missing", pieces="<pad> <unk> <s> </s>")),
        ("words", [*CONTROLS, "▁", "▁cat", "▁cat"], has_code("tokenizer_piece_duplicate", piece="' cat'")),
        ("words", [*CONTROLS, "▁", " "], has_code("tokenizer_piece_duplicate", piece="' '")),
        ("words", [*CONTROLS, "▁", "<s>"], has_code("tokenizer_piece_duplicate", piece="'<s>'")),
        ("words", [*CONTROLS, "▁", ""], has_code("tokenizer_piece_invalid", piece="''")),
        ("words", [*CONTROLS, "▁", "a b"], has_code("tokenizer_piece_invalid", piece="'a b'")),
        ("words", [*CONTROLS, "▁", "\t\t"], has_code("tokenizer_piece_invalid")),
        ("words", [*CONTROLS, "▁", "\ud800"], has_code("tokenizer_json_invalid")),
        ("words", [*CONTROLS, "▁cat"], has_code("tokenizer_piece_missing", piece=" ")),
        ("characters", [*CONTROLS, "ab"], has_code("tokenizer_piece_invalid", piece="'ab'", kind="characters")),
        ("characters", [*CONTROLS, "a", "a"], has_code("tokenizer_piece_duplicate", piece="'a'")),
    ],
)
def test_a_damaged_list_of_pieces_raises_model_error(
    kind: str, pieces: object, error: ErrorCheck, tmp_path: Path
) -> None:
    (tmp_path / "source.tokenizer.json").write_text(json.dumps({**GOOD, "kind": kind, "pieces": pieces}))
    with pytest.raises(ModelError, check=error):
        load_tokenizer(tmp_path, "source")


def test_importing_text_loads_neither_sentencepiece_nor_torch() -> None:
    code = "import sys, attendo.text; print([name for name in ('sentencepiece', 'torch') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
