"""Attention of all heads as small blocks side by side, and of one head as a map with its tokens."""

import re

import numpy as np
from jaxtyping import Float64
from rich.style import Style
from rich.text import Text

from attendo.explore.attention_map import AttentionMap
from attendo.explore.heatmap_colours import DARK, level
from attendo.explore.heatmap_terminal import terminal
from attendo.explore.language import Language
from attendo.explore.trace_words import say

_SHADES = " ░▒▓█"
_ROWS, _COLUMNS = 24, 32  # of a block; more are left out, with a mark
_MORE_COLUMNS = re.compile(r"… (\d+) more column")


def blocks(weights: Float64[np.ndarray, "H T S"], width: int, language: Language) -> Text:
    """Two cells a weight, so that squares look square; heads that do not fit go below."""
    heads, rows, columns = weights.shape
    shown_rows, shown_columns = min(rows, _ROWS), min(columns, _COLUMNS, max(1, (width - 4) // 2))
    block = max(2 * shown_columns, 8)
    beside = max(1, (width + 2) // (block + 2))
    lines: list[Text] = []
    for begin in range(0, heads, beside):
        group = range(begin, min(begin + beside, heads))
        lines.append(Text("  " + "  ".join(say("head", language, head).ljust(block) for head in group), "dim"))
        lines += [_line(weights, group, row, shown_columns, block) for row in range(shown_rows)]
    for key, more in (("more_rows", rows - shown_rows), ("more_columns", columns - shown_columns)):
        if more:
            lines.append(Text(f"  {say(key, language, more)}", "yellow"))
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def heat_map(attention: AttentionMap, step: int | None, width: int, language: Language) -> Text:
    """One head, or one row of it; at most as many rows as a screen has."""
    chosen = slice(0, _ROWS) if step is None else slice(step, step + 1)
    part = AttentionMap(attention.weights[chosen], attention.rows[chosen], attention.columns, attention.title)
    lines = list(terminal(part, max(width, 24)).split("\n"))[:-1]  # whoever shows it says what the rows are
    if found := _MORE_COLUMNS.match(lines[-1].plain):
        lines[-1] = Text(say("more_columns", language, found[1]), "yellow")
    if step is None and len(attention.rows) > _ROWS:
        lines.append(Text(say("more_rows", language, len(attention.rows) - _ROWS), "yellow"))
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _line(weights: Float64[np.ndarray, "H T S"], heads: range, row: int, columns: int, block: int) -> Text:
    line = Text()
    for head in heads:
        line.append("  ")
        for weight in weights[head, row, :columns].tolist():
            shade = _SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)]
            colour = DARK[level(weight)]
            # Shade in the colour of its ground: unseen in colour, and the only picture without it.
            line.append(shade * 2, Style(color=colour, bgcolor=colour))
        line.append(" " * (block - 2 * columns))
    return line
