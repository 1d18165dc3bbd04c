"""Several attention maps as one self-contained HTML page with a selector."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from attendo.errors import UsageError
from attendo.explore.attention_map import (
    DARK,
    DARK_INKS,
    LIGHT,
    LIGHT_INKS,
    STRONG_LEVEL,
    TOP_LEVEL,
    AttentionMap,
    make_visible,
)
from attendo.explore.heatmap_svg import render_map_svg

STYLE = """\
:root {
  --ground: #f4f7f9; --paper: #ffffff; --ink: #12303f; --muted: #5b7480; --line: #d5e0e6; --accent: #0279a9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0c1418; --paper: #121c21; --ink: #e2edf2; --muted: #91a9b4; --line: #2a3b43; --accent: #68caee;
  }
}
[hidden] { display: none !important }
body {
  margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", "Helvetica Neue", "Noto Sans", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", sans-serif;
}
main { width: fit-content; min-width: min(46rem, 100% - 3rem); max-width: calc(100% - 3rem); margin: 2rem auto }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: 0 0 1.5rem }
th, td { text-align: left; vertical-align: top; padding: .2rem 1.25rem .2rem 0 }
th { color: var(--muted); font-weight: 400; white-space: nowrap }
td { overflow-wrap: anywhere }
.controls { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem; margin: 0 0 .5rem }
.controls label, .hint { color: var(--muted); font-size: .9rem }
select, button {
  font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--line); border-radius: 6px;
  padding: .3rem .6rem; max-width: 100%;
}
button { cursor: pointer }
:is(select, button):is(:hover, :focus-visible) { border-color: var(--accent); outline: none }
kbd { font: inherit; border: 1px solid var(--line); border-radius: 4px; padding: 0 .3rem }
output { display: block; min-height: 1.5em; margin: 0 0 .5rem; overflow-wrap: anywhere }
output b { color: var(--accent); font-variant-numeric: tabular-nums }
figure { margin: 0; overflow-x: auto; background: var(--paper); border: 1px solid var(--line); border-radius: 10px }
svg { display: block; overflow: visible }
.paper { fill: var(--paper) }
.ink { fill: var(--ink) }
.muted { fill: var(--muted) }
.hot { fill: var(--accent); font-weight: 700 }
.band { fill: none; stroke: var(--accent); stroke-width: 1.5; pointer-events: none }
"""
SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const picker = document.getElementById("picker");
const readout = document.getElementById("readout");
const drawings = [...document.querySelectorAll("figure")].map((figure, number) => {
  const svg = figure.querySelector("svg");
  const all = (kind) => [...svg.querySelectorAll(kind)];
  const bands = [0, 1].map(() => {
    const band = document.createElementNS(svg.namespaceURI, "rect");
    band.setAttribute("class", "band");
    band.setAttribute("rx", 3);
    return svg.appendChild(band);
  });
  return {
    figure, svg, bands, ...data.drawings[number], name: svg.querySelector(".name"),
    cells: all(".cell"), digits: all(".digits"), rowLabels: all(".row"), columnLabels: all(".column"),
  };
});
let shown = 0;
let pointed = null;

function show(number) {
  shown = (number + data.maps.length) % data.maps.length;
  picker.value = shown;
  const map = data.maps[shown];
  const drawing = drawings[map.drawing];
  for (const other of drawings) other.figure.hidden = other !== drawing;
  drawing.name.textContent = map.title;
  drawing.svg.setAttribute("aria-label", map.title);
  map.weights.flat().forEach((weight, at) => {
    const [row, column] = place(drawing, at);
    const cell = drawing.cells[at];
    const level = Math.round(weight * data.top_level);
    cell.setAttribute("class", "cell q" + level);
    cell.firstElementChild.textContent =
      `${drawing.rows[row]} ← ${drawing.columns[column]} ${weight.toFixed(2)}`;
    const digits = drawing.digits[at];
    if (!digits) return;
    digits.textContent = weight < 0.005 ? "" : weight >= 0.995 ? "1.0" : weight.toFixed(2).slice(1);
    digits.setAttribute("class", "digits " + (level >= data.strong_level ? "strong" : "weak"));
  });
  point(pointed);
}

function place(drawing, at) {
  return [Math.floor(at / drawing.columns.length), at % drawing.columns.length];
}

function point(at) {
  const map = data.maps[shown];
  const drawing = drawings[map.drawing];
  pointed = at !== null && at < drawing.cells.length ? at : null;
  const [row, column] = pointed === null ? [-1, -1] : place(drawing, pointed);
  drawing.rowLabels.forEach((label, number) => label.classList.toggle("hot", number === row));
  drawing.columnLabels.forEach((label, number) => label.classList.toggle("hot", number === column));
  for (const band of drawing.bands) band.toggleAttribute("hidden", pointed === null);
  readout.replaceChildren();
  if (pointed === null) {
    readout.textContent = " ";
    return;
  }
  const step = drawing.columns.length;
  enclose(drawing.bands[0], drawing.cells[row * step], drawing.cells[row * step + step - 1]);
  enclose(drawing.bands[1], drawing.cells[column], drawing.cells[drawing.cells.length - step + column]);
  const weight = document.createElement("b");
  weight.textContent = map.weights[row][column].toFixed(3);
  const [predicted, source] = [drawing.rows[row], drawing.columns[column]].map((token) => {
    const label = document.createElement("bdi");
    label.textContent = token;
    return label;
  });
  readout.append(weight, "  of the attention while predicting ", predicted, " went to ", source);
}

function enclose(band, first, last) {
  const number = (cell, name) => Number(cell.getAttribute(name));
  const [x, y] = [number(first, "x") - 1, number(first, "y") - 1];
  band.setAttribute("x", x);
  band.setAttribute("y", y);
  band.setAttribute("width", number(last, "x") + number(last, "width") + 1 - x);
  band.setAttribute("height", number(last, "y") + number(last, "height") + 1 - y);
}

for (const drawing of drawings) {
  drawing.cells.forEach((cell, at) => cell.addEventListener("pointerenter", () => point(at)));
  drawing.svg.addEventListener("pointerleave", () => point(null));
}
picker.addEventListener("change", () => show(Number(picker.value)));
document.getElementById("previous").addEventListener("click", () => show(shown - 1));
document.getElementById("next").addEventListener("click", () => show(shown + 1));
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  show(shown + step);
});
document.querySelector(".controls").hidden = false;
document.getElementById("still").hidden = true;
readout.hidden = false;
show(0);
"""


def render_maps_html(maps: Sequence[AttentionMap], heading: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return the page. Without JavaScript it shows the first map. It makes no network requests."""
    if not maps:
        raise UsageError("no_attention_maps")
    # Maps over the same tokens share one drawing, which the script recolours. The layout is computed only in Python.
    drawings: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    figures = []
    for attention in maps:
        if (attention.rows, attention.columns) not in drawings:
            figures.append(f"<figure{' hidden' if drawings else ''}>\n{render_map_svg(attention)}\n</figure>")
            drawings[attention.rows, attention.columns] = len(drawings)
    data = {
        "top_level": TOP_LEVEL,
        "strong_level": STRONG_LEVEL,
        "drawings": [
            {"rows": _make_all_visible(rows), "columns": _make_all_visible(columns)} for rows, columns in drawings
        ],
        "maps": [
            {
                "title": make_visible(attention.title),
                "drawing": drawings[attention.rows, attention.columns],
                "weights": np.minimum(attention.weights, 1).round(4).tolist(),
            }
            for attention in maps
        ],
    }
    return "\n".join([_html_head(heading), _page_header(maps, heading, facts), *figures, _page_end(data)])


def _html_head(heading: str) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(make_visible(heading))}</title>
<style>
{STYLE}{_colour_rules(LIGHT, LIGHT_INKS)}
@media (prefers-color-scheme: dark) {{
{_colour_rules(DARK, DARK_INKS)}
}}
</style>
</head>"""


def _page_header(maps: Sequence[AttentionMap], heading: str, facts: Sequence[tuple[str, str]]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(make_visible(name))}</th><td>{escape(make_visible(value))}</td></tr>'
        for name, value in facts
    )
    options = "\n".join(
        f'<option value="{number}">{escape(make_visible(attention.title))}</option>'
        for number, attention in enumerate(maps)
    )
    table = f"<table>\n{rows}\n</table>" if facts else ""
    return f"""<body>
<main>
<h1>{escape(make_visible(heading))}</h1>
{table}
<form class="controls" hidden>
<label for="picker">attention of</label>
<button type="button" id="previous" aria-label="previous map">←</button>
<select id="picker">
{options}
</select>
<button type="button" id="next" aria-label="next map">→</button>
<span class="hint"><kbd>←</kbd> <kbd>→</kbd> change the map, point at a cell to read it</span>
</form>
<p class="hint" id="still">Map 1 of {len(maps)}; the others need JavaScript.</p>
<output id="readout" for="picker" hidden></output>"""


def _page_end(data: dict[str, Any]) -> str:
    return f"""</main>
<script type="application/json" id="data">{escape_json(data)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def escape_json(data: dict[str, Any]) -> str:
    """Return JSON that cannot close its enclosing script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _colour_rules(scale: tuple[str, ...], inks: tuple[str, str]) -> str:
    rules = [f".q{step} {{ fill: {colour} }}" for step, colour in enumerate(scale)]
    rules += [f".weak {{ fill: {inks[0]} }}", f".strong {{ fill: {inks[1]} }}"]
    return "\n".join(rules)


def _make_all_visible(tokens: tuple[str, ...]) -> list[str]:
    return [make_visible(token) for token in tokens]
