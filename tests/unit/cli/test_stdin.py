"""Input blocks from standard input, the line counter and warnings per line."""

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


def set_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "utf-8"))


def test_the_first_block_is_small_and_no_line_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    set_stdin(monkeypatch, b"".join(b"%d\n" % number for number in range(5000)))
    blocks = list(stdin.read_input_blocks("strict"))
    assert [len(block) for block in blocks] == [16, 2048, 2048, 888]
    assert [line for block in blocks for line in block] == [str(number) for number in range(5000)]


def test_only_a_line_feed_ends_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    set_stdin(monkeypatch, "\ufeffa\u2028b\r\nc\x85\rd\n\ne".encode())
    assert list(stdin.read_input_blocks("strict")) == [["a\u2028b", "c\x85\rd", "", "e"]]


def test_a_terminal_is_read_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    set_stdin(monkeypatch, b"a\nb\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert list(stdin.read_input_blocks("strict")) == [["a"], ["b"], []]


def test_lines_before_a_bad_line_are_returned_first(monkeypatch: pytest.MonkeyPatch) -> None:
    set_stdin(monkeypatch, b"a\nb\n\xff\n")
    blocks = stdin.read_input_blocks("strict")
    assert next(blocks) == ["a", "b"]
    with pytest.raises(DataError, check=has_code("stdin_line_not_utf8", line=3)):
        next(blocks)
    set_stdin(monkeypatch, b"a\nb\n\xff\n")
    assert list(stdin.read_input_blocks("replace")) == [["a", "b", "\ufffd"]]


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stderr = Terminal() if terminal else io.StringIO()
    set_stdin(monkeypatch, b"")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(stdin, "MIN_PROGRESS_SECONDS", -1.0)
    counter = stdin.LineCounter()
    counter.add(1200)
    assert ("1,200 lines" in stderr.getvalue()) == terminal
    counter.clear()
    assert stderr.getvalue().endswith("\r\x1b[K") == terminal
    monkeypatch.setattr(stdin, "MIN_PROGRESS_SECONDS", 1000.0)
    before = stderr.getvalue()
    stdin.LineCounter().add(5)
    assert stderr.getvalue() == before  # short work shows no progress


def test_lines_from_a_pipe_are_returned_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe has three complete lines and a partial one, and its writer waits for answers."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as pipe, os.fdopen(writing, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", pipe)
        blocks = stdin.read_input_blocks("strict")
        writer.write(b"a\r\nb\n\nc")
        assert next(blocks) == ["a", "b", ""]
        writer.write("c\n我\nd".encode())
        assert next(blocks) == ["cc", "我"]
        writer.close()
        assert list(blocks) == [["d"]]


def test_a_file_is_read_in_full_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = [f"{number} {'word ' * (number % 90)}" for number in range(5000)]
    (tmp_path / "text").write_text("\n".join(text), "utf-8")
    with (tmp_path / "text").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        blocks = list(stdin.read_input_blocks("strict"))
    assert [len(block) for block in blocks] == [16, 2048, 2048, 888]
    assert [line for block in blocks for line in block] == text


def test_a_closed_stdin_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, check=has_code("stdin_closed")):
        next(stdin.read_input_blocks("strict"))


def test_errors_of_a_text_name_its_line() -> None:
    line = has_code("line_of_file", path="some", line=8)
    expected = has_code("source_exceeds_model_limit", text=line, tokens=9, limit=4)
    with pytest.raises(DataError, check=expected), stdin.name_line_in_errors(Path("some"), lines_before=6):
        raise TooLongError("text_exceeds_model_limit", 1, 3, tokens=9, limit=4)
    line = has_code("line_of_file", path="some", line=1)
    expected = has_code("sentence_exceeds_model_limit", text=line, sentence="'to: me'", tokens=9, limit=4)
    with pytest.raises(DataError, check=expected), stdin.name_line_in_errors(Path("some")):
        raise TooLongError("sentence_exceeds_model_limit", 0, 1, sentence="'to: me'", tokens=9, limit=4)
    expected = has_code("text_log_probability_nan", text=has_code("line_of_file", path="some", line=5))
    with pytest.raises(ModelError, check=expected), stdin.name_line_in_errors(Path("some"), line_indices=[6, 4, 2]):
        raise NotANumberError("text_log_probability_nan", "fp16", 1, 3)


def test_long_lists_of_unknown_words_are_shortened() -> None:
    (warning,) = output.list_warnings(6, replace(EMPTY_RESULT, unknown=("x" * 10_000, *map(str, range(60)))))
    assert warning.startswith("line 7: not in the vocabulary: 'xxx")
    assert warning.endswith("'18' and 41 more")
    assert len(warning) < 400
