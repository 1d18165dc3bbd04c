"""A heat map for the terminal: coloured tiles with digits, and shade characters for output without colour."""

from collections.abc import Iterable

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from attendo.errors import LocalizedText, UsageError
from attendo.explore.attention_map import (
    CAPTION,
    DARK,
    DARK_INKS,
    SHADES,
    AttentionMap,
    colour_level,
    format_weight,
    is_strong,
    make_visible,
    truncate,
)
from attendo.messages import Language

_MIN_WIDTH = 24
_TILE = 4  # a shade and three digits
_LABEL_LIMITS = (24, 16, 12, 9, 7)  # cells; labels are shortened before columns are omitted


def render_map_terminal(attention: AttentionMap, width: int, language: Language = "en") -> Text:
    """Render the map with a caption in lines of at most `width` cells."""
    lines, hidden = render_map_lines(attention, width)
    if hidden:
        template = (
            "… {hidden} more columns, summed under the last …" if hidden > 1 else "… 1 more column, under the last …"
        )
        mark = LocalizedText(template, hidden=hidden).text(language)
        lines.append(Text(truncate(mark, width), style="yellow"))
    lines.append(Text(truncate(LocalizedText(CAPTION).text(language), width), style="dim"))
    return join_lines(lines)


def render_map_lines(attention: AttentionMap, width: int) -> tuple[list[Text], int]:
    """Return the lines of the map, and the number of columns that do not fit and are summed in one last column.

    The tiles set a dark background, because the colour of the terminal is unknown.
    """
    if width < _MIN_WIDTH:
        raise UsageError("heat_map_too_narrow", min_width=_MIN_WIDTH, width=width)
    rows = [make_visible(row) for row in attention.rows]
    columns = [make_visible(column) for column in attention.columns]
    margin = min(max(cell_len(row) for row in rows), width // 3)
    widths = _column_widths(columns, width - margin)
    shown, hidden = len(widths), len(columns) - len(widths)
    matrix = attention.weights[:, :shown].tolist()
    if hidden:
        widths.append(_TILE)
        columns = [*columns[:shown], "…"]
        rest = attention.weights[:, shown:].sum(axis=1).clip(max=1).tolist()
        matrix = [[*weights, left_out] for weights, left_out in zip(matrix, rest, strict=True)]
    lines = [Text(truncate(make_visible(attention.title), width), style="bold"), _header(columns, widths, margin)]
    lines += [_row(label, weights, widths, margin) for label, weights in zip(rows, matrix, strict=True)]
    return lines, hidden


def join_lines(lines: Iterable[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _column_widths(columns: list[str], room: int) -> list[int]:
    """Return the widths of the columns that fit. If some do not fit, one tile is reserved for their sum."""
    for limit in _LABEL_LIMITS:
        widths = [min(max(cell_len(column), _TILE), limit) for column in columns]
        if sum(widths) + len(widths) <= room:
            return widths
    shown: list[int] = []
    room -= 1 + _TILE
    for width in widths:
        room -= 1 + width
        if room < 0:
            break
        shown.append(width)
    return shown


def _header(columns: list[str], widths: list[int], margin: int) -> Text:
    labels = [_centre(truncate(column, width), width) for column, width in zip(columns, widths, strict=True)]
    return Text(" ".join([" " * margin, *labels]))


def _row(label: str, weights: list[float], widths: list[int], margin: int) -> Text:
    short = truncate(label, margin)
    line = Text(" " * (margin - cell_len(short)) + short)
    for weight, width in zip(weights, widths, strict=True):
        ground = DARK[colour_level(weight)]
        digits = format_weight(weight) or " · "
        tile = _centre(_shade(weight) + digits, width)
        start = tile.index(digits)
        line.append(" ")
        # The shade has the colour of its background: invisible with colour, visible without.
        line.append(tile[:start], Style(color=ground, bgcolor=ground))
        line.append(tile[start:], Style(color=DARK_INKS[is_strong(weight)], bgcolor=ground))
    return line


def _shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES) + 0.5), len(SHADES) - 1)]


def _centre(text: str, width: int) -> str:
    padding = width - cell_len(text)
    return " " * (padding // 2) + text + " " * (padding - padding // 2)
