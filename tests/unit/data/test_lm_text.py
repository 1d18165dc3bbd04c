"""Reading running text in blocks."""

import gzip
import json
import lzma
import re
from pathlib import Path

import pytest
from error_codes import ErrorCheck, fragment, has_code, message
from running import some_text

from attendo.data import lm_text
from attendo.data.lm_text import TextFile, TextSize
from attendo.errors import DataError

TEXT = "eins\nzwei drei\n\nvier fünf 六\n"


def write_text(folder: Path, content: bytes, name: str = "text.txt") -> TextFile:
    (folder / name).write_bytes(content)
    return TextFile((folder / name,))


def read_text(text: TextFile) -> str:
    return "".join(block.text for block in text.read_blocks())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_block_size_does_not_change_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", size)
    text = write_text(tmp_path, b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert read_text(text) == TEXT
    assert text.measure() == TextSize(len(TEXT), 5)


def test_compressed_text_is_read_as_plain(tmp_path: Path) -> None:
    for name, compressed in (("a.gz", gzip.compress(TEXT.encode())), ("a.xz", lzma.compress(TEXT.encode()))):
        assert read_text(write_text(tmp_path, compressed, name)) == TEXT


def test_a_carriage_return_inside_a_line_is_text(tmp_path: Path) -> None:
    assert read_text(write_text(tmp_path, b"a\rb\r\nc\r")) == "a\rb\nc\r"


def test_blocks_end_before_line_breaks_if_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", 12)
    blocks = list(write_text(tmp_path, b"one\ntwo\nthree four five six\nseven\n").read_blocks())
    assert [block.text for block in blocks] == ["one\ntwo", "\nthree four ", "five six", "\nseven\n"]
    assert [block.starts_at_line for block in blocks] == [True, True, False, True]
    assert [block.line for block in blocks] == [1, 2, 3, 3]


def test_blocks_are_limited_in_text_without_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", 100)
    text = some_text(5000).replace("\n", " ")
    blocks = [block.text for block in write_text(tmp_path, text.encode()).read_blocks()]
    assert max(map(len, blocks)) == 100
    assert "".join(blocks) == text


def test_each_document_ends_with_a_nul_character(tmp_path: Path) -> None:
    first, second = write_text(tmp_path, b"a\nb\n", "a.txt"), write_text(tmp_path, b"c", "b.txt")
    assert read_text(TextFile((*first.paths, *second.paths))) == "a\nb\n\0c\0"
    lines = [{"id": 1, "text": "one\r\ntwo"}, {"text": "", "body": "three"}]
    documents = write_text(tmp_path, "\n\n".join(map(json.dumps, lines)).encode(), "c.jsonl")
    assert read_text(documents) == "one\ntwo\0\0"
    assert documents.measure() == TextSize(9, 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b'{"id": 1, "body": "a"}',
            message("jsonl_text_field_missing", location="line 2", field="text", fields="id, body"),
        ),
        (b'{"text": 3}', fragment("jsonl_text_field_missing", location="line 2", field="text")),
        (b'["text"]', "no fields"),
        (b"a", fragment("jsonl_line_not_json", location="line 2")),
        (b'{"text": "\\u0000"}', fragment("jsonl_text_contains_nul", location="line 2")),
        (b'{"text": "\\ud800"}', fragment("unpaired_surrogate_in_line", location="line 2")),
    ],
)
def test_an_unreadable_document_is_an_error_that_names_the_line(tmp_path: Path, line: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=re.escape(expected)):
        read_text(write_text(tmp_path, b'{"text": "a"}\n' + line, "c.jsonl"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", has_code("file_is_empty")),
        (b"a\nb\nc\xff\n", has_code("line_not_utf8", line=3)),
        (b"a\nb\xe5\xad", has_code("line_not_utf8", line=2)),
        (b"a\n\nb\0c", has_code("text_line_contains_nul", line=3)),
    ],
)
@pytest.mark.parametrize("size", [2, 1000])
def test_bad_text_is_an_error_that_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, error: ErrorCheck, size: int
) -> None:
    monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", size)
    with pytest.raises(DataError, check=error):
        write_text(tmp_path, content).measure()


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, check=has_code("file_open_failed")):
        TextFile((tmp_path / "nowhere.txt",)).measure()
    with pytest.raises(DataError, check=has_code("file_read_failed")):
        write_text(tmp_path, gzip.compress(TEXT.encode() * 50)[:40], "cut.gz").measure()
