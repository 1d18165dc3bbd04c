"""Blocks of lines, and what is said while they are worked on."""

import io
import sys

import pytest

from attendo.cli import lines
from attendo.errors import DataError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def give(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "utf-8"))


def test_the_first_block_is_small_and_no_line_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"".join(b"%d\n" % number for number in range(5000)))
    blocks = list(lines.input_blocks("strict"))
    assert [len(block) for block in blocks] == [16, 2048, 2048, 888]
    assert [line for block in blocks for line in block] == [str(number) for number in range(5000)]


def test_lines_end_in_a_line_feed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "\ufeffa\u2028b\r\nc\x85\rd\n\ne".encode())
    assert list(lines.input_blocks("strict")) == [["a\u2028b", "c\x85\rd", "", "e"]]


def test_a_terminal_is_answered_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"a\nb\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert list(lines.input_blocks("strict")) == [["a"], ["b"], []]


def test_what_stands_above_a_bad_line_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"a\nb\n\xff\n")
    blocks = lines.input_blocks("strict")
    assert next(blocks) == ["a", "b"]
    with pytest.raises(DataError, match="standard input line 3 is not UTF-8"):
        next(blocks)
    give(monkeypatch, b"a\nb\n\xff\n")
    assert list(lines.input_blocks("replace")) == [["a", "b", "\ufffd"]]


@pytest.mark.parametrize("terminal", [True, False])
def test_how_far_it_is_is_told_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    told = Terminal() if terminal else io.StringIO()
    give(monkeypatch, b"")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr(lines, "SHOWN_AFTER", -1.0)
    standing = lines.Standing()
    standing.add(1200)
    assert ("1,200 lines" in told.getvalue()) == terminal
    standing.clear()
    assert told.getvalue().endswith("\r\x1b[K") == terminal
    monkeypatch.setattr(lines, "SHOWN_AFTER", 1000.0)
    before = told.getvalue()
    lines.Standing().add(5)
    assert told.getvalue() == before  # short work needs no word
