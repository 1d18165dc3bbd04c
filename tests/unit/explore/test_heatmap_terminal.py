"""The terminal map keeps its width, marks omissions, and is readable without colour."""

from io import StringIO

import numpy as np
import pytest
from error_codes import has_code
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from attendo.errors import UsageError
from attendo.explore.attention_map import CAPTION, DARK, AttentionMap, colour_level
from attendo.explore.heatmap_terminal import render_map_terminal


def test_a_small_map_reads_as_plain_text() -> None:
    attention = AttentionMap([[0.93, 0.07], [0.0, 1.0]], ["我", "自然"], ["I", "natural"], "decoder layer 2, head 1")
    assert [line.rstrip() for line in render_map_terminal(attention, 80).plain.split("\n")] == [
        "decoder layer 2, head 1",
        "      I   natural",
        "  我 █.93   .07",
        "自然   ·   █1.0",
        CAPTION,
    ]


def test_shades_grow_with_the_weight() -> None:
    attention = AttentionMap([[0.0, 0.2, 0.4, 0.6, 1.0]], ["a"], list("vwxyz"), "head")
    row = render_map_terminal(attention, 80).plain.split("\n")[2]
    assert row == "a   ·  ░.20 ▒.40 ▓.60 █1.0"


def test_a_cell_has_the_colour_of_its_weight() -> None:
    console = Console(width=80, force_terminal=True, color_system="truecolor", record=True, file=StringIO())
    console.print(render_map_terminal(AttentionMap([[0.9, 0.1]], ["a"], ["b", "c"], "head"), 80))
    page = console.export_html()
    assert f"background-color: {DARK[colour_level(0.9)]}" in page
    assert f"background-color: {DARK[colour_level(0.1)]}" in page


def test_columns_that_do_not_fit_are_counted_and_summed() -> None:
    weights = np.zeros((2, 40))
    weights[0, 0], weights[0, 38], weights[0, 39] = 0.4, 0.25, 0.35
    weights[1, 1] = 1
    attention = AttentionMap(weights, ["a", "b"], [f"column{number}" for number in range(40)], "head")
    _, header, first, second, mark, _ = render_map_terminal(attention, 50).plain.split("\n")
    shown = header.count("colu")
    assert 0 < shown < 40
    assert mark.startswith(f"… {40 - shown} more columns")
    assert header.split()[-1] == "…"
    assert first.split()[-1] == "▓.60"
    assert second.split()[-1] == "·"


def test_one_hidden_column_is_in_the_singular() -> None:
    columns = ["column1", "column2", "column3"]
    text = render_map_terminal(AttentionMap([[0.0, 0.0, 1.0]], ["a"], columns, "head"), 24).plain
    assert "… 1 more column," in text
    assert "█1.0" in text


def test_labels_are_shortened_before_columns_are_dropped() -> None:
    columns = ["international"] * 6
    text = render_map_terminal(AttentionMap(np.full((1, 6), 1 / 6), ["a"], columns, "head"), 58).plain
    assert text.count("intern…") == 6
    assert "more column" not in text


def test_a_long_row_label_is_truncated_by_display_width() -> None:
    row = render_map_terminal(AttentionMap([[1.0]], ["自然语言处理"], ["I"], "head"), 30).plain.split("\n")[2]
    assert row == "自然语言 … █1.0"


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.text(max_size=30), min_size=1, max_size=4),
    columns=st.lists(st.text(max_size=30), min_size=1, max_size=20),
    title=st.text(max_size=100),
    width=st.integers(24, 130),
)
def test_no_line_is_wider_than_the_given_width(rows: list[str], columns: list[str], title: str, width: int) -> None:
    weights = np.full((len(rows), len(columns)), 1 / len(columns))
    lines = render_map_terminal(AttentionMap(weights, rows, columns, title), width).plain.split("\n")
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) in (len(rows) + 3, len(rows) + 4)


def test_a_narrow_terminal_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("heat_map_too_narrow", min_width=24, width=10)):
        render_map_terminal(AttentionMap([[1.0]], ["a"], ["b"], "head"), 10)
