"""The terminal view of a trace: its content, its width and its omission marks."""

import io
import re
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from rich.cells import cell_len
from rich.console import Console
from tiny import tiny_model

from attendo.errors import UsageError
from attendo.explore.i18n import read_strings
from attendo.explore.trace_terminal import TraceView, render_trace
from attendo.explore.trace_text import format_number, make_value_table, token_labels
from attendo.text_model import Trace

LONG = " ".join(["the cat sat"] * 22)


def render(trace: Trace, width: int = 100, **choices: Any) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for paragraph in render_trace(trace, TraceView(**choices), width):
        console.print(paragraph)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_sections_go_from_the_tokens_to_the_output() -> None:
    text = render(tiny_model().trace("the cat sat", "猫 坐"))
    positions = [
        text.index(each)
        for each in (
            "source  the cat sat </s>",
            "source.embedding",
            "encoder.0.self.scores",
            "encoder.0.feed_forward.bent",
            "decoder.0.self.masked",
            "decoder.0.cross.weights",
            "Sizes along the way",
            "output.logits",
            "most probable",
            "What else this run shows",
        )
    ]
    assert positions == sorted(positions)
    assert "Q = X̂·W_Q + b_Q : [4, 16]·[16, 16] + [16] → [4, 16] → [2, 4, 8]" in text
    assert "−∞" in text
    assert "--layer N" in text
    assert "decoder.1.cross.scores" not in text


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("choices", [{}, {"layer": 1}, {"head": 1, "language": "zh"}, {"step": 2, "layer": 0}])
def test_no_line_is_wider_than_the_terminal(width: int, choices: dict[str, Any]) -> None:
    trace = tiny_model().trace(LONG, "我 看见 小 猫 了 " * 15)
    assert max(cell_len(line) for line in render(trace, width, **choices).splitlines()) <= width


def test_a_layer_is_shown_with_all_its_tensors() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐", layer=1)
    text = render(trace, layer=1)
    for name in trace:
        assert (f"{name}  " in text) == name.startswith(("encoder.1.", "decoder.1.")), name


def test_the_chosen_head_is_shown() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    text = render(trace, head=1)
    assert format_number(float(trace["decoder.1.cross.scores"][1, 0, 0])) in text
    assert "head 0" not in text
    assert "decoder.0.cross, head 1" in text


def test_a_step_shows_its_row_and_its_distribution() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    text = render(trace, step=1)
    assert "step 1: 坐" in text
    assert format_number(float(trace["decoder.1.cross.scores"][0, 1, 0])) in text
    assert "encoder.0" not in text
    assert f"{trace.steps()[1].top[0].probability:.3f}" in text


def test_omitted_rows_and_columns_are_marked() -> None:
    text = render(tiny_model().trace(LONG, "猫 坐"), 80)
    assert re.search(r"… \d+ more rows", text)
    assert re.search(r"\d …$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("choices", "error"),
    [
        ({"head": 2}, has_code("head_out_of_range", head=2, count=2)),
        ({"head": -1}, has_code("head_out_of_range", head=-1)),
        ({"step": 3}, has_code("step_out_of_range", step=3, count=3)),
    ],
)
def test_missing_heads_and_steps_are_rejected(choices: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        render(tiny_model().trace("the cat sat", "猫 坐"), **choices)


def test_the_chinese_view_has_no_english_strings() -> None:
    model = tiny_model()
    trace = model.trace("the xylophone sat", "猫 坐", heads={"decoder.0.cross": {1: 0.0}}, masked=False)
    text = render(trace, language="zh")
    strings = read_strings()["trace"].values()
    english = [each["en"] for each in strings if len(each["en"]) > 12 and each["en"] != each["zh"]]
    assert not [words for words in english if words in text]
    assert "词表中没有，按 <unk> 读入：xylophone" in text
    assert "解码器的掩码已关闭" in text
    assert "decoder.0.cross: 1 × 0" in text


def test_tokens_cannot_send_escape_codes() -> None:
    trace = tiny_model().trace("the \x1b[31mcat", "猫")
    assert "\x1b" not in render(trace)


def test_rows_and_columns_are_labelled_by_tokens() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    read, predicted, source = ("<s>", "猫", "坐"), ("猫", "坐", "</s>"), ("the", "cat", "sat", "</s>")
    assert token_labels(trace, "decoder.0.self.weights") == (predicted, read)
    assert token_labels(trace, "decoder.0.cross.weights") == (predicted, source)
    assert token_labels(trace, "decoder.0.self.keys") == (read, None)
    assert token_labels(trace, "decoder.0.cross.values") == (source, None)
    assert token_labels(trace, "target.input") == (read, None)
    assert token_labels(trace, "encoder.0.self.scores") == (source, source)
    assert token_labels(trace, "output.logits") == (predicted, None)


def test_a_table_counts_omitted_rows_and_columns() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    shown = make_value_table(trace, "source.input", max_size=(2, 5))
    assert (shown.rows, shown.more_rows, shown.more_columns) == (("the", "cat"), 2, 11)
    assert shown.cells[1][4] == format_number(float(trace["source.input"][1, 4]))


@pytest.mark.parametrize(
    ("value", "expected"), [(-0.12345, "−0.123"), (float("-inf"), "−∞"), (12345.6, "1.23e+04"), (7, "7")]
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert format_number(value) == expected


@pytest.mark.parametrize("name", ["log_probabilities", "entropy"])
def test_steps_take_one_pass_over_the_vocabulary(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With one pass per step, the cost of an answer would grow with the square of its length."""
    trace, original, calls = tiny_model().trace("the cat sat", "猫 坐 着"), vars(Trace)[name], []
    monkeypatch.setattr(Trace, name, property(lambda self: calls.append(name) or original.fget(self)))
    assert len(trace.steps()) == 4
    assert calls == [name]
