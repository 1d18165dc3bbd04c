"""The reader of model files: every error is one short line that names the file."""

import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from error_codes import has_code
from pydantic import Field

from attendo.errors import AttendoError, ModelError, UsageError, cut_text, list_names, shorten
from attendo.model_files import COPY_AGAIN, read_bytes, read_json, read_text
from attendo.settings import Settings
from attendo.text.sentencepiece import iter_pieces, read_model_type


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", has_code("json_syntax_invalid")),
        (b"{", has_code("json_syntax_invalid")),
        (b'{"a": "\xff"}', has_code("json_syntax_invalid")),
        (b"\xff\xfe{\x00}\x00", has_code("json_syntax_invalid")),
        (b'{"a": "\\ud800"}', has_code("json_syntax_invalid")),
        (b'{"\\uDFff": 1}', has_code("json_syntax_invalid")),
        (b'{"a": ' + b"9" * 5000 + b"}", has_code("json_syntax_invalid")),
        (b'{"a": ' + b"[" * 100_000, has_code("json_syntax_invalid")),
        (b"[1]", has_code("json_not_an_object")),
        (b"null", has_code("json_not_an_object")),
    ],
)
def test_invalid_json_raises_an_error_with_the_path(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, check=reason) as error:
        read_json(path, COPY_AGAIN)
    assert str(error.value).startswith(f"{path} is damaged")
    assert str(error.value).endswith(COPY_AGAIN)
    assert len(str(error.value)) < 300 + len(str(path))


def test_a_surrogate_pair_is_one_character(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": "\\ud83d\\ude42", "b": "\\\\ud800"}', "utf-8")
    assert read_json(tmp_path / "a.json") == {"a": "🙂", "b": "\\ud800"}


def test_text_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "merges.txt").write_bytes(b"a b\n\xe4 b\n")
    with pytest.raises(ModelError, check=has_code("model_file_not_utf8", path=tmp_path / "merges.txt")):
        read_text(tmp_path / "merges.txt")


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, check=has_code("not_a_regular_file", path=tmp_path / "config.json")):
        read_bytes(tmp_path / "config.json")
    with pytest.raises(ModelError, check=has_code("model_file_unreadable", path=tmp_path / "nowhere")):
        read_bytes(tmp_path / "nowhere")


LONG: dict[str, Any] = {
    "text": "x" * 100_000,
    "list": ["z"] * 50_000,
    "key": {"k" * 5_000: 1},
    "number": 10**3000,
    "nested": {"a": [[[["b"] * 9_000]]]},
}


@pytest.mark.parametrize("value", LONG.values(), ids=LONG)
def test_a_quoted_value_is_shortened(value: Any) -> None:
    assert len(shorten(value)) <= 80
    assert len(str(AttendoError("settings_invalid", faults=value))) <= 2000


def test_numbers_too_long_for_str_are_named_by_type() -> None:
    assert shorten(10**5000) == "a large int"


def test_lists_of_names_are_shortened() -> None:
    assert list_names(["a", "b"]) == "a, b"
    assert list_names([str(n) for n in range(1000)], 2) == "0, 1, …"
    assert cut_text("abcdef", 4) == "abc…"


class Small(Settings):
    number: Annotated[int, Field(le=9)] = 1
    several: tuple[bool, ...] = ()


@pytest.mark.parametrize("value", LONG.values(), ids=LONG)
@pytest.mark.parametrize("name", ["number", "several", "x" * 50_000], ids=["number", "several", "unknown"])
def test_settings_errors_are_short(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as error:
        Small(**{name: value})
    assert len(str(error.value)) < 500


def test_many_settings_errors_give_a_short_message() -> None:
    with pytest.raises(UsageError, check=has_code("settings_invalid")) as error:
        Small(**{f"unknown{n}": 1 for n in range(100)})
    assert len(str(error.value)) < 500


def piece(content: bytes, kind: bytes = b"") -> bytes:
    row = b"\x0a" + bytes([len(content)]) + content + kind
    return b"\x0a" + bytes([len(row)]) + row


@pytest.mark.parametrize("model", [piece(b"a", b"\x18\x80\x80\x80\x80\x08"), piece(b"\xff"), b"\x00\x01"])
def test_invalid_pieces_raise_model_error(model: bytes) -> None:
    with pytest.raises(ModelError, match="not a SentencePiece model"):
        list(iter_pieces(model))


def test_an_unknown_model_type_is_read_as_unigram() -> None:
    assert read_model_type(b"\x12\x02\x18\x63") == "unigram"


def test_no_other_code_reads_model_files() -> None:
    """interop and text read JSON files only with it."""
    package = Path(__file__).resolve().parents[2] / "attendo"
    found = [
        str(path.relative_to(package))
        for folder in ("interop", "text")
        for path in (package / folder).rglob("*.py")
        if "json.load(" in path.read_text("utf-8") or ".read_text(" in path.read_text("utf-8")
    ]
    others = ["interop/marian/marian_process.py", "interop/onnx/session.py", "text/languages.py"]
    assert sorted(found) == others, "they read no file of a model folder"
