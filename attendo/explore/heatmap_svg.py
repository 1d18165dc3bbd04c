"""A heat map as one standalone SVG file with a light background."""

import math
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len

from attendo.explore.attention_map import (
    CAPTION,
    LIGHT,
    LIGHT_INKS,
    TOP_LEVEL,
    AttentionMap,
    colour_level,
    format_weight,
    is_strong,
    make_visible,
    truncate,
)

FONTS = (
    "system-ui, 'Segoe UI', 'Helvetica Neue', 'Noto Sans', 'PingFang SC', 'Hiragino Sans', 'Microsoft YaHei', "
    "'Noto Sans CJK SC', 'Noto Sans SC', 'Source Han Sans SC', 'WenQuanYi Micro Hei', sans-serif"
)
_INK, _MUTED, _PAPER = "#12303f", "#5b7480", "#ffffff"
_MARGIN, _TITLE_LINE = 24.0, 40.0
_TITLE_SIZE, _CAPTION_SIZE = 17, 12
_LABEL_ROTATION = math.radians(50)
_MAX_LABEL_CELLS = 40  # cells; the tooltip shows the full token


def render_map_svg(attention: AttentionMap) -> str:
    """Return the SVG. Each cell has a tooltip `row ← column 0.93`. CSS classes let a page restyle the colours."""
    layout = _lay_out(attention)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width}" height="{layout.height}" '
        f'viewBox="0 0 {layout.width} {layout.height}" font-family="{FONTS}" role="img" '
        f'aria-label="{escape(make_visible(attention.title))}">',
        f'<rect class="paper" width="{layout.width}" height="{layout.height}" rx="10" fill="{_PAPER}"/>',
        _text(
            make_visible(attention.title),
            _MARGIN,
            _TITLE_LINE,
            f'class="ink name" font-size="{_TITLE_SIZE}" font-weight="600"',
            _INK,
        ),
        *_column_labels(attention, layout),
        *_row_labels(attention, layout),
        *_cells(attention, layout),
        *_foot(layout),
        "</svg>",
    ]
    return "\n".join(parts)


@dataclass(frozen=True)
class _SvgLayout:
    """Layout in pixels: corner of the grid, cell size, size of the picture."""

    left: float
    top: float
    cell: int
    font: int
    rotated_labels: bool
    width: int
    height: int
    bottom: float

    @property
    def shows_digits(self) -> bool:
        return self.cell >= 36


def _lay_out(attention: AttentionMap) -> _SvgLayout:
    longest_side = max(attention.weights.shape)
    cell, font = (40, 15) if longest_side <= 16 else (24, 13) if longest_side <= 32 else (15, 11)
    row_room = max(_text_width(_label(row), font) for row in attention.rows)
    column_widths = [_text_width(_label(column), font) for column in attention.columns]
    rotated = max(column_widths) > cell - 2
    column_room = max(column_widths) * math.sin(_LABEL_ROTATION) + font / 2 if rotated else 1.0 * font
    left = _MARGIN + row_room + 10
    top = _TITLE_LINE + 24 + column_room + 8
    # A rotated label extends to the right of its column.
    ends = [
        (at + 0.5) * cell + (width * math.cos(_LABEL_ROTATION) if rotated else 0)
        for at, width in enumerate(column_widths)
    ]
    grid = max(len(attention.columns) * cell, *ends)
    texts = (_text_width(make_visible(attention.title), _TITLE_SIZE + 1), _text_width(CAPTION, _CAPTION_SIZE))
    width = max(left + grid, *(_MARGIN + text for text in texts)) + _MARGIN
    bottom = top + len(attention.rows) * cell
    return _SvgLayout(left, top, cell, font, rotated, math.ceil(width), math.ceil(bottom + 78), bottom)


def _column_labels(attention: AttentionMap, layout: _SvgLayout) -> list[str]:
    labels = []
    for column, token in enumerate(attention.columns):
        x, y = layout.left + (column + 0.5) * layout.cell, layout.top - 8
        if layout.rotated_labels:
            x += layout.font * 0.3
            attributes = f'class="ink column" font-size="{layout.font}" transform="rotate(-50 {x:.1f} {y:.1f})"'
        else:
            attributes = f'class="ink column" font-size="{layout.font}" text-anchor="middle"'
        labels.append(_text(_label(token), x, y, attributes, _INK))
    return labels


def _row_labels(attention: AttentionMap, layout: _SvgLayout) -> list[str]:
    attributes = f'class="ink row" font-size="{layout.font}" text-anchor="end"'
    middle = layout.cell / 2 + layout.font * 0.36
    return [
        _text(_label(token), layout.left - 10, layout.top + row * layout.cell + middle, attributes, _INK)
        for row, token in enumerate(attention.rows)
    ]


def _cells(attention: AttentionMap, layout: _SvgLayout) -> list[str]:
    gap = 2 if layout.cell >= 24 else 1
    side = layout.cell - gap
    parts = []
    for row, row_token in enumerate(attention.rows):
        for column, column_token in enumerate(attention.columns):
            weight = float(attention.weights[row, column])
            x, y = layout.left + column * layout.cell + gap / 2, layout.top + row * layout.cell + gap / 2
            tip = escape(f"{make_visible(row_token)} ← {make_visible(column_token)} {weight:.2f}")
            parts.append(
                f'<rect class="cell q{colour_level(weight)}" x="{x:g}" y="{y:g}" width="{side}" height="{side}" '
                f'rx="{gap}" fill="{LIGHT[colour_level(weight)]}"><title>{tip}</title></rect>'
            )
            if layout.shows_digits:
                kind = ("weak", "strong")[is_strong(weight)]
                attributes = f'class="digits {kind}" font-size="12" text-anchor="middle" pointer-events="none"'
                ink = LIGHT_INKS[is_strong(weight)]
                parts.append(_text(format_weight(weight), x + side / 2, y + side / 2 + 4.3, attributes, ink))
    return parts


def _foot(layout: _SvgLayout) -> list[str]:
    """Return the colour scale and the caption."""
    start, y = _MARGIN + 14, layout.bottom + 22
    attributes = f'class="muted" font-size="{_CAPTION_SIZE}"'
    bar = [
        f'<rect class="q{step}" x="{start + step * 3:g}" y="{y:g}" width="3.2" height="10" fill="{LIGHT[step]}"/>'
        for step in range(TOP_LEVEL + 1)
    ]
    return [
        _text("0", _MARGIN, y + 9.5, attributes, _MUTED),
        *bar,
        _text("1", start + (TOP_LEVEL + 1) * 3 + 7, y + 9.5, attributes, _MUTED),
        _text(CAPTION, _MARGIN, y + 34, attributes, _MUTED),
    ]


def _text(text: str, x: float, y: float, attributes: str, ink: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes} fill="{ink}">{escape(text)}</text>'


def _label(token: str) -> str:
    return truncate(make_visible(token), _MAX_LABEL_CELLS)


def _text_width(text: str, font: int) -> float:
    """Return an upper estimate without font metrics: 1 em per wide character, 0.58 em per narrow one."""
    return sum(font * (1.0 if cell_len(character) == 2 else 0.58) for character in text)
