"""The graph of a parallel trace as an SVG picture: vertices from left to right, links, and the chosen path."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len

from attendo.explore.attention_map import make_visible, truncate
from attendo.explore.heatmap_svg import FONTS
from attendo.explore.parallel_text import (
    ShownLink,
    format_share,
    label_vertex,
    parallel_string,
    select_links,
    select_vertices,
)
from attendo.messages import Language
from attendo.text_model.parallel_trace import GraphTrace, GraphVertex

_MARGIN, _GAP, _DOT, _STEP = 16.0, 18.0, 7.0, 24.0  # pixels
_LANE, _HEIGHT = 62.0, 40.0
_FONT, _SMALL = 14, 10
_MAX_CELLS = 16  # of a label
_INK, _MUTED, _ACCENT, _PAPER, _LINE = "#12303f", "#5b7480", "#02658d", "#ffffff", "#d5e0e6"


@dataclass(frozen=True)
class _Box:
    """A vertex in the picture: its centre and its width, in pixels. A dot has no label and no width."""

    vertex: GraphVertex
    label: str
    x: float
    width: float
    lane: int  # -1 above the path, 0 on it, 1 below it

    @property
    def y(self) -> float:
        return _MARGIN + _HEIGHT / 2 + (self.lane + 1) * _LANE

    @property
    def is_dot(self) -> bool:
        return not self.label


def render_graph_svg(details: GraphTrace, language: Language = "en") -> str:
    """Return the picture. Tooltips have the numbers. CSS classes let a page restyle the colours."""
    boxes, width, height = _lay_out(details, language)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    label = escape(parallel_string("graph", language))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" {size} font-family="{FONTS}" role="img" '
            f'aria-label="{label}">',
            f'<rect class="paper" width="{width}" height="{height}" rx="10" fill="{_PAPER}"/>',
            *_draw_links(select_links(details), boxes, language),
            *(part for each in boxes for part in _draw_vertex(each, height)),
            "</svg>",
        ]
    )


def _lay_out(details: GraphTrace, language: Language) -> tuple[list[_Box], int, int]:
    """Place the vertices in the order of their positions: those of the path in one line, the others beside it."""
    shown, last = {each.position for each in select_vertices(details)}, len(details.vertices) - 1
    ends, boxes, x = dict.fromkeys((-1, 0, 1), _MARGIN - _GAP), list[_Box](), _MARGIN  # right edge of each lane
    for each in details.vertices:
        if each.position not in shown:
            x += _DOT if boxes[-1].is_dot else 2 * _DOT
            boxes.append(_Box(each, "", x, 0.0, 0))
            continue
        label = truncate(make_visible(label_vertex(each, last, language)), _MAX_CELLS)
        width = max(38.0, 8.5 * cell_len(label) + 16)
        lane = 0 if each.chosen else min((-1, 1), key=lambda side: ends[side])
        x = max(x + _STEP, ends[lane] + _GAP + width / 2)
        ends[lane] = x + width / 2
        boxes.append(_Box(each, label, x, width, lane))
    return boxes, math.ceil(max(*ends.values(), x) + _MARGIN), math.ceil(2 * _LANE + _HEIGHT + 2 * _MARGIN + 22)


def _draw_links(links: list[ShownLink], boxes: list[_Box], language: Language) -> Iterator[str]:
    for each in sorted(links, key=lambda one: (one.link.chosen, one.taken)):
        link = each.link
        numbers = f"{link.probability:.2f}", f"{format_share(each.taken)}%"
        tip = escape(parallel_string("link", language, link.start, link.end, *numbers))
        style = (
            f'class="link chosen" stroke="{_ACCENT}" stroke-width="3"'
            if link.chosen
            else f'class="link" stroke="{_INK}" stroke-width="1.5" opacity="{max(0.15, each.taken**0.6):.2f}"'
        )
        path = _curve(boxes[link.start], boxes[link.end], link.chosen)
        yield f'<path d="{path}" fill="none" {style}><title>{tip}</title></path>'


def _curve(start: _Box, end: _Box, is_chosen: bool) -> str:
    left, right = start.x + start.width / 2, end.x - end.width / 2
    first, last = f"{left:.1f} {start.y:.1f}", f"{right:.1f} {end.y:.1f}"
    if is_chosen:
        return f"M{first} L{last}"
    middle = (left + right) / 2
    if start.lane == end.lane:  # bends, so that the vertices between its ends stay readable
        bend = (1 if start.lane > 0 else -1) * (_HEIGHT / 2 + 12)
        middle = left + min(24.0, (right - left) / 2)
        return f"M{first} C{middle:.1f} {start.y + bend:.1f} {left + right - middle:.1f} {end.y + bend:.1f} {last}"
    return f"M{first} C{middle:.1f} {start.y:.1f} {middle:.1f} {end.y:.1f} {last}"


def _draw_vertex(box: _Box, height: int) -> Iterator[str]:
    vertex, axis = box.vertex, height - 12
    top = ", ".join(f"{make_visible(one.piece)} {one.probability:.2f}" for one in vertex.top)
    tip = escape(f"{vertex.position} · {vertex.pass_probability:.3f} · {top or box.label}")
    if box.is_dot:
        place = f'cx="{box.x:.1f}" cy="{axis - 4}" r="2"'
        yield f'<circle class="dot" {place} fill="{_MUTED}"><title>{tip}</title></circle>'
        return
    share = 1.0 if vertex.chosen else max(0.6, vertex.pass_probability)
    kind, stroke = ("vertex chosen", _ACCENT) if vertex.chosen else ("vertex", _MUTED)
    weight = 650 if vertex.chosen else 400
    left, above = box.x - box.width / 2, box.y - _HEIGHT / 2
    yield f'<g class="{kind}" opacity="{share:.2f}"><title>{tip}</title>'
    yield (
        f'<rect x="{left:.1f}" y="{above:.1f}" width="{box.width:.1f}" height="{_HEIGHT:g}" rx="7" fill="{_PAPER}" '
        f'stroke="{stroke}" stroke-width="{2 if vertex.chosen else 1}"/>'
    )
    ink = f'font-size="{_FONT}" font-weight="{weight}" fill="{_INK}"'
    muted = f'class="muted" font-size="{_SMALL}" fill="{_MUTED}"'
    share_text = escape(f"{format_share(vertex.pass_probability)}%")
    yield _text(box.x, box.y - 1, ink, escape(box.label))
    yield f"{_text(box.x, box.y + 14, muted, share_text)}</g>"
    yield _text(box.x, axis, muted, str(vertex.position))


def _text(x: float, y: float, attributes: str, content: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" {attributes}>{content}</text>'
