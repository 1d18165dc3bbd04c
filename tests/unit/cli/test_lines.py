"""Blocks of lines, and what is said while they are worked on."""

import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from error_codes import has_code

from attendo.cli import output, stdin
from attendo.errors import DataError, ModelError, UsageError
from attendo.text_model import NotANumberError, TooLongError
from attendo.text_model.results import EMPTY_RESULT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def give(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "utf-8"))


def test_the_first_block_is_small_and_no_line_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"".join(b"%d\n" % number for number in range(5000)))
    blocks = list(stdin.read_input_blocks("strict"))
    assert [len(block) for block in blocks] == [16, 2048, 2048, 888]
    assert [line for block in blocks for line in block] == [str(number) for number in range(5000)]


def test_lines_end_in_a_line_feed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "\ufeffa\u2028b\r\nc\x85\rd\n\ne".encode())
    assert list(stdin.read_input_blocks("strict")) == [["a\u2028b", "c\x85\rd", "", "e"]]


def test_a_terminal_is_answered_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"a\nb\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert list(stdin.read_input_blocks("strict")) == [["a"], ["b"], []]


def test_what_stands_above_a_bad_line_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"a\nb\n\xff\n")
    blocks = stdin.read_input_blocks("strict")
    assert next(blocks) == ["a", "b"]
    with pytest.raises(DataError, check=has_code("stdin_line_not_utf8", line=3)):
        next(blocks)
    give(monkeypatch, b"a\nb\n\xff\n")
    assert list(stdin.read_input_blocks("replace")) == [["a", "b", "\ufffd"]]


@pytest.mark.parametrize("terminal", [True, False])
def test_how_far_it_is_is_told_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    told = Terminal() if terminal else io.StringIO()
    give(monkeypatch, b"")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr(stdin, "MIN_PROGRESS_SECONDS", -1.0)
    standing = stdin.LineCounter()
    standing.add(1200)
    assert ("1,200 lines" in told.getvalue()) == terminal
    standing.clear()
    assert told.getvalue().endswith("\r\x1b[K") == terminal
    monkeypatch.setattr(stdin, "MIN_PROGRESS_SECONDS", 1000.0)
    before = told.getvalue()
    stdin.LineCounter().add(5)
    assert told.getvalue() == before  # short work needs no word


def test_who_waits_for_an_answer_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lines and a half of a line are there, and no more will come before they are answered."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as pipe, os.fdopen(writing, "wb", buffering=0) as other:
        monkeypatch.setattr(sys, "stdin", pipe)
        blocks = stdin.read_input_blocks("strict")
        other.write(b"a\r\nb\n\nc")
        assert next(blocks) == ["a", "b", ""]
        other.write("c\n我\nd".encode())
        assert next(blocks) == ["cc", "我"]
        other.close()
        assert list(blocks) == [["d"]]


def test_of_a_file_nothing_is_cut_short_nor_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = [f"{number} {'word ' * (number % 90)}" for number in range(5000)]
    (tmp_path / "text").write_text("\n".join(text), "utf-8")
    with (tmp_path / "text").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        blocks = list(stdin.read_input_blocks("strict"))
    assert [len(block) for block in blocks] == [16, 2048, 2048, 888]
    assert [line for block in blocks for line in block] == text


def test_a_closed_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, check=has_code("stdin_closed")):
        next(stdin.read_input_blocks("strict"))


def test_a_fault_of_a_text_is_told_of_its_line() -> None:
    line = has_code("line_of_file", path="some", line=8)
    told = has_code("source_exceeds_model_limit", text=line, tokens=9, limit=4)
    with pytest.raises(DataError, check=told), stdin.name_line_in_errors(Path("some"), lines_before=6):
        raise TooLongError("text_exceeds_model_limit", 1, 3, tokens=9, limit=4)
    line = has_code("line_of_file", path="some", line=1)
    told = has_code("sentence_exceeds_model_limit", text=line, sentence="'to: me'", tokens=9, limit=4)
    with pytest.raises(DataError, check=told), stdin.name_line_in_errors(Path("some")):
        raise TooLongError("sentence_exceeds_model_limit", 0, 1, sentence="'to: me'", tokens=9, limit=4)
    told = has_code("text_log_probability_nan", text=has_code("line_of_file", path="some", line=5))
    with pytest.raises(ModelError, check=told), stdin.name_line_in_errors(Path("some"), line_indices=[6, 4, 2]):
        raise NotANumberError("text_log_probability_nan", "fp16", 1, 3)


def test_unknown_words_are_told_shortly() -> None:
    (told,) = output.list_warnings(6, replace(EMPTY_RESULT, unknown=("x" * 10_000, *map(str, range(60)))))
    assert told.startswith("line 7: not in the vocabulary: 'xxx")
    assert told.endswith("'18' and 41 more")
    assert len(told) < 400
