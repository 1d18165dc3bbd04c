"""Draws heatmaps, curves and bars as SVG text, on white, so that they are readable on a dark page too."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

FONT = "font-family='system-ui, Noto Sans CJK SC, Noto Sans SC, PingFang SC, Microsoft YaHei, sans-serif'"
INK, FAINT = "#1f2430", "#d9dce3"
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8a5fbf")
Rows = Sequence[Sequence[float | None]]
LETTER = 6.6  # about the width of a Latin letter at 12 px; a Chinese one is twice as wide
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
    x, parts = margin, []
    for panel in panels:
        parts.append(f"<g transform='translate({x:g} {margin:g})'>{panel.body}</g>")
        x += panel.width + gap
    width, height = x - gap + margin, max(panel.height for panel in panels) + 2 * margin
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:g}' height='{height:g}' "
        f"viewBox='0 0 {width:g} {height:g}' {FONT} font-size='12' fill='{INK}'>\n"
        f"<rect width='100%' height='100%' fill='#fff'/>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def heatmap(
    rows: Rows, title: str = "", down: Sequence[str] = (), across: Sequence[str] = (), cell: float = 34
) -> Panel:
    """Draw 0 white, 1 dark, and None (a masked position) hatched. Cells of at least 30 px show their numbers."""
    left = max((length(each) for each in down), default=0) + (8 if down else 0)
    top = (22 if title else 0) + (24 if across else 0)
    parts = [text(0, 12, title, weight=600)] if title else []
    slanted = any(length(name) > cell + 2 for name in across)
    top += 22 if slanted else 0
    for n, name in enumerate(across):
        at = (left + (n + 0.5) * cell, top - 7)
        parts.append(text(*at, name, "start", turn=-35) if slanted else text(*at, name, "middle"))
    for m, row in enumerate(rows):
        y = top + m * cell
        if down:
            parts.append(text(left - 8, y + cell / 2 + 4, down[m], "end"))
        parts += [square(left + n * cell, y, cell, value) for n, value in enumerate(row)]
    widest = max(left + len(rows[0]) * cell + (30 if slanted else 0), BOLD * length(title))
    return Panel(widest, top + len(rows) * cell, "".join(parts))


def curves(
    lines: Sequence[Line], title: str, bottom: str, top: float | None = None, start: float = 0, step: float = 1
) -> Panel:
    """Draw lines over a common axis, with points at start, start + step ...; values above `top` are clipped."""
    width, height, left, head = 380, 190, 44, 44
    points = max(len(line.values) for line in lines)
    ceiling = top or max(value for line in lines for value in line.values if value is not None) * 1.05
    end = start + (points - 1) * step

    def place(x: float, y: float) -> tuple[float, float]:
        return left + width * (x - start) / (end - start), head + height * (1 - min(y / ceiling, 1.0))

    parts = [text(0, 12, title, weight=600)]
    for mark in ticks(ceiling):
        _, y = place(start, mark)
        parts += [stroke([(left, y), (left + width, y)], FAINT, 1), text(left - 6, y + 4, f"{mark:g}", "end")]
    for mark in (each for each in ticks(end) if each >= start):
        parts.append(text(place(mark, 0)[0], head + height + 16, f"{mark:g}", "middle"))
    parts.append(text(left + width / 2, head + height + 33, bottom, "middle"))
    x = float(left)
    for line, colour in zip(lines, COLOURS, strict=False):
        parts += [stroke([(x, 28), (x + 18, 28)], colour, 3), text(x + 24, 32, line.name)]
        x += length(line.name) + 48
        run = [place(start + n * step, value) for n, value in enumerate(line.values) if value is not None]
        parts.append(stroke(run, colour, 2))
    return Panel(left + width + 8, head + height + 38, "".join(parts))


def bars(names: Sequence[str], values: Sequence[float], title: str, shown: str = "{:.3g}") -> Panel:
    """Draw horizontal bars, each followed by its number."""
    left, width, thick, head = max(map(length, names)) + 8, 220.0, 24, 24
    most = max(values) or 1.0
    parts = [text(0, 12, title, weight=600)]
    for n, (name, value) in enumerate(zip(names, values, strict=True)):
        y = head + n * (thick + 6)
        parts.append(text(left - 8, y + 16, name, "end"))
        size = f"width='{max(width * value / most, 1):.1f}' height='{thick}'"
        parts.append(f"<rect x='{left:g}' y='{y}' {size} fill='{COLOURS[0]}'/>")
        parts.append(text(left + width * value / most + 6, y + 16, shown.format(value)))
    return Panel(max(left + width + 56, BOLD * length(title)), head + len(names) * (thick + 6), "".join(parts))


def square(x: float, y: float, cell: float, value: float | None) -> str:
    place = f"x='{x:g}' y='{y:g}' width='{cell:g}' height='{cell:g}'"
    if value is None:
        cross = stroke([(x + 3, y + cell - 3), (x + cell - 3, y + 3)], "#b9bec9", 1)
        return f"<rect {place} fill='#f1f2f5' stroke='#fff'/>" + cross
    dark = min(max(value, 0.0), 1.0)
    red, green, blue = (round(255 + (end - 255) * dark) for end in (20, 74, 128))
    edge = "stroke='#e3e5ea'" if cell >= 14 else ""
    box = f"<rect {place} fill='rgb({red},{green},{blue})' {edge}/>"
    if cell < 30:
        return box
    colour = "#fff" if dark > 0.55 else INK
    return box + text(x + cell / 2, y + cell / 2 + 4, f"{value:.2f}", "middle", colour=colour, size=11)


def stroke(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='{width:g}'/>"


def text(
    x: float,
    y: float,
    words: str,
    anchor: str = "start",
    turn: float = 0,
    colour: str = INK,
    size: int = 12,
    weight: int = 400,
) -> str:
    turned = f" transform='rotate({turn:g} {x:g} {y:g})'" if turn else ""
    look = f"text-anchor='{anchor}' fill='{colour}' font-size='{size}' font-weight='{weight}'"
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
