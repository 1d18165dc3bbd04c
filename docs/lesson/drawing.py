"""Draws heatmaps, curves, bars and boxes as SVG text with the colours of the reader's light or dark mode."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

FONT = "font-family='system-ui, Noto Sans CJK SC, Noto Sans SC, PingFang SC, Microsoft YaHei, sans-serif'"
# Colours are classes, not variables: a program without media queries then still draws the light ones.
LIGHT = {
    "ink": "#1f2430", "muted": "#667085", "faint": "#d9dce3", "paper": "#ffffff", "panel": "#eef1f6", "deep": "#144a80",
    "over": "#ffffff", "hatch": "#b9bec9", "c0": "#1b6ca8", "c1": "#d1495b", "c2": "#2e8b57", "c3": "#8a5fbf",
}  # fmt: skip
DARK = {
    "ink": "#e4e8f0", "muted": "#98a2b3", "faint": "#39414f", "paper": "#12161f", "panel": "#1f2633", "deep": "#8ec5ff",
    "over": "#0b1220", "hatch": "#566072", "c0": "#6cb2f0", "c1": "#ff8a96", "c2": "#67cf97", "c3": "#c3a1f2",
}  # fmt: skip
COLOURS = ("c0", "c1", "c2", "c3")
Rows = Sequence[Sequence[float | None]]
Point = tuple[float, float]
LETTER = 7.2  # about the width of a Latin letter at 12 px; a Chinese one is twice as wide
BOLD = 1.2  # a title's letters are wider


@dataclass(frozen=True)
class Panel:
    """A part of a picture, drawn from its upper left corner."""

    width: float
    height: float
    body: str


@dataclass(frozen=True)
class Line:
    """One curve: its name in the legend and its values; a None value has no point."""

    name: str
    values: Sequence[float | None]


def picture(panels: Sequence[Panel], gap: float = 28, margin: float = 12) -> str:
    """Return an SVG with the panels in one row."""
    whole = row_of(panels, gap)
    width, height = whole.width + 2 * margin, whole.height + 2 * margin
    body = f"<g transform='translate({margin:g} {margin:g})'>{whole.body}</g>"
    used = [name for name in LIGHT if f"{name}'" in body or f"{name} " in body or name == "paper"]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:g}' height='{height:g}' "
        f"viewBox='0 0 {width:g} {height:g}' {FONT} font-size='12'>\n"
        f"<style>{rules(LIGHT, used)}\n@media (prefers-color-scheme: dark) {{ {rules(DARK, used)} }}</style>\n"
        f"<rect class='paper' width='100%' height='100%' rx='6'/>\n{body}\n</svg>\n"
    )


def rules(colours: dict[str, str], used: Sequence[str]) -> str:
    return " ".join(f".{name}{{fill:{colours[name]}}} .s-{name}{{stroke:{colours[name]}}}" for name in used)


def row_of(panels: Sequence[Panel], gap: float = 28) -> Panel:
    """Return one panel with the others beside each other."""
    x, parts = 0.0, []
    for panel in panels:
        parts.append(f"<g transform='translate({x:g} 0)'>{panel.body}</g>")
        x += panel.width + gap
    return Panel(x - gap, max(panel.height for panel in panels), "".join(parts))


def stack(panels: Sequence[Panel], gap: float = 20) -> Panel:
    """Return one panel with the others below each other."""
    y, parts = 0.0, []
    for panel in panels:
        parts.append(f"<g transform='translate(0 {y:g})'>{panel.body}</g>")
        y += panel.height + gap
    return Panel(max(panel.width for panel in panels), y - gap, "".join(parts))


def heatmap(
    rows: Rows, title: str = "", down: Sequence[str] = (), across: Sequence[str] = (), cell: float = 34,
    axes: tuple[str, str] = ("", ""), most: float = 1.0, marked: Sequence[tuple[int, int, int, int]] = (),
) -> Panel:  # fmt: skip
    """Draw 0 as the background, `most` deep, and None (a masked position) hatched. Large cells show their numbers.

    `axes` names the rows and the columns. `marked` are frames: first row, first column, rows, columns.
    """
    left = max((length(each) for each in down), default=0) + (8 if down else 0) + (18 if axes[0] else 0)
    top = (22 if title else 0) + (18 if axes[1] else 0) + (24 if across else 0)
    slanted = any(length(name) > cell + 2 for name in across)
    top += 22 if slanted else 0
    width, height = len(rows[0]) * cell, len(rows) * cell
    parts = [text(0, 12, title, weight=600)] if title else []
    if axes[1]:
        parts.append(text(left + width / 2, (22 if title else 0) + 11, axes[1], "middle", colour="muted"))
    if axes[0]:
        parts.append(text(11, top + height / 2, axes[0], "middle", turn=-90, colour="muted"))
    for n, name in enumerate(across):
        at = (left + (n + 0.5) * cell, top - 7)
        parts.append(text(*at, name, "start", turn=-35) if slanted else text(*at, name, "middle"))
    for m, row in enumerate(rows):
        y = top + m * cell
        if down:
            parts.append(text(left - 8, y + cell / 2 + 4, down[m], "end"))
        parts += [square(left + n * cell, y, cell, value, most) for n, value in enumerate(row)]
    for m, n, rows_framed, columns_framed in marked:
        size = f"width='{columns_framed * cell:g}' height='{rows_framed * cell:g}' fill='none' stroke-width='2.5'"
        parts.append(f"<rect class='s-c1' x='{left + n * cell:g}' y='{top + m * cell:g}' {size}/>")
    widest = max(left + width + (30 if slanted else 0), BOLD * length(title))
    return Panel(widest, top + height, "".join(parts))


def curves(
    lines: Sequence[Line], title: str, bottom: str, top: float | None = None, start: float = 0, step: float = 1,
    log: bool = False,
) -> Panel:  # fmt: skip
    """Draw lines over a common axis, with points at start, start + step ...; values above `top` are clipped.

    With `log` both the values and the distances between them are read on powers of ten.
    """
    width, height, left, head = 380, 190, 52, 44
    known = [value for line in lines for value in line.values if value is not None and (value > 0 or not log)]
    points = max(len(line.values) for line in lines)
    ceiling = top or max(known) * 1.05
    powers = range(math.floor(math.log10(min(known))), math.ceil(math.log10(ceiling)) + 1) if log else range(0)
    end = start + (points - 1) * step

    def share(y: float) -> float:
        if not log:
            return min(y / ceiling, 1.0)
        return (math.log10(max(y, 10.0 ** powers[0])) - powers[0]) / (powers[-1] - powers[0])

    def place(x: float, y: float) -> Point:
        return left + width * (x - start) / (end - start), head + height * (1 - min(share(y), 1.0))

    parts = [text(0, 12, title, weight=600)]
    every = math.ceil(len(powers) / 7) or 1
    for mark in [10.0**n for n in powers[::every]] if log else ticks(ceiling):
        _, y = place(start, mark)
        name = f"{mark:g}" if 1e-4 < mark < 1e4 or not log else f"{mark:.0e}".replace("e-0", "e-")
        parts += [stroke([(left, y), (left + width, y)], "faint", 1), text(left - 6, y + 4, name, "end")]
    for mark in (each for each in ticks(end) if each >= start):
        parts.append(text(place(mark, 0)[0], head + height + 16, f"{mark:g}", "middle"))
    parts.append(text(left + width / 2, head + height + 33, bottom, "middle", colour="muted"))
    x = float(left)
    for line, colour in zip(lines, COLOURS, strict=False):
        parts += [stroke([(x, 28), (x + 18, 28)], colour, 3), text(x + 24, 32, line.name)]
        x += length(line.name) + 48
        run = [place(start + n * step, value) for n, value in enumerate(line.values) if value is not None]
        parts.append(stroke(run, colour, 2))
    return Panel(max(left + width + 8, BOLD * length(title)), head + height + 38, "".join(parts))


def bars(names: Sequence[str], values: Sequence[float], title: str, shown: str = "{:.3g}") -> Panel:
    """Draw horizontal bars, each followed by its number."""
    left, width, thick, head = max(map(length, names)) + 8, 220.0, 24, 24
    most = max(values) or 1.0
    parts = [text(0, 12, title, weight=600)]
    for n, (name, value) in enumerate(zip(names, values, strict=True)):
        y = head + n * (thick + 6)
        parts.append(text(left - 8, y + 16, name, "end"))
        size = f"width='{max(width * value / most, 1):.1f}' height='{thick}'"
        parts.append(f"<rect class='c0' x='{left:g}' y='{y}' {size}/>")
        parts.append(text(left + width * value / most + 6, y + 16, shown.format(value)))
    return Panel(max(left + width + 56, BOLD * length(title)), head + len(names) * (thick + 6), "".join(parts))


def box(
    x: float, y: float, width: float, height: float, words: str, fill: str = "panel", ink: str = "ink", size: int = 12,
    edge: str = "faint",
) -> str:  # fmt: skip
    """Draw a rounded box with one or more lines of words in its middle."""
    lines = words.split("\n")
    first = y + height / 2 + size * 0.36 - (len(lines) - 1) * size * 0.6
    written = [
        text(x + width / 2, first + n * size * 1.2, line, "middle", colour=ink, size=size)
        for n, line in enumerate(lines)
    ]
    shape = f"x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='5'"
    return f"<rect class='{fill} s-{edge}' {shape}/>" + "".join(written)


def arrow(points: Sequence[Point], colour: str = "muted", width: float = 1.5) -> str:
    """Draw a line with a head at its last point."""
    (x, y), (to_x, to_y) = points[-2:]
    angle = math.atan2(to_y - y, to_x - x)
    wings = [(to_x - 8 * math.cos(angle + turn), to_y - 8 * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [(to_x, to_y), *wings])
    tail = (to_x - 5 * math.cos(angle), to_y - 5 * math.sin(angle))
    return stroke([*points[:-1], tail], colour, width) + f"<polygon class='{colour}' points='{corners}'/>"


def square(x: float, y: float, cell: float, value: float | None, most: float = 1.0) -> str:
    place = f"x='{x:g}' y='{y:g}' width='{cell:g}' height='{cell:g}'"
    if value is None:
        cross = stroke([(x + 3, y + cell - 3), (x + cell - 3, y + 3)], "hatch", 1)
        return f"<rect class='panel s-faint' {place}/>" + cross
    depth = min(max(value / most, 0.0), 1.0)
    edge = " s-faint" if cell >= 14 else ""
    drawn = f"<rect class='deep{edge}' fill-opacity='{depth:.2f}' {place}/>"
    if cell < 30:
        return drawn
    colour = "over" if depth > 0.55 else "ink"
    return drawn + text(x + cell / 2, y + cell / 2 + 4, f"{value:.2f}", "middle", colour=colour, size=11)


def stroke(points: Sequence[Point], colour: str, width: float, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = " stroke-dasharray='4 3'" if dashed else ""
    return f"<polyline class='s-{colour}' points='{path}' fill='none' stroke-width='{width:g}'{dash}/>"


def text(
    x: float,
    y: float,
    words: str,
    anchor: str = "start",
    turn: float = 0,
    colour: str = "ink",
    size: int = 12,
    weight: int = 400,
) -> str:
    turned = f" transform='rotate({turn:g} {x:g} {y:g})'" if turn else ""
    look = f"class='{colour}' text-anchor='{anchor}' font-size='{size}' font-weight='{weight}'"
    return f"<text x='{x:g}' y='{y:g}' {look}{turned}>{escape(words)}</text>"


def length(words: str) -> float:
    return sum(LETTER * (2 if ord(letter) > 0x2E80 else 1) for letter in words)


def ticks(most: float) -> list[float]:
    """Return four or five round numbers from 0 on."""
    if most <= 0:
        return [0]
    size = 1.0
    while size * 5 < most:
        size *= 10
    while size > most:
        size /= 10
    for share in (5, 2, 1, 0.5, 0.2, 0.1):
        if most / (size * share) >= 3:
            size *= share
            break
    return [round(n * size, 10) for n in range(int(most / size + 1e-9) + 1)]
