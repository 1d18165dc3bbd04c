"""Many heat maps as one self-contained page that opens from disk, with a picker and a read-out."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from attendo.errors import UsageError
from attendo.explore.attention_map import AttentionMap, visible
from attendo.explore.heatmap_colours import DARK, DARK_INKS, LIGHT, LIGHT_INKS, STRONG_LEVEL, TOP_LEVEL
from attendo.explore.heatmap_page import SCRIPT, STYLE
from attendo.explore.heatmap_svg import svg


def html(maps: Sequence[AttentionMap], heading: str, facts: Sequence[tuple[str, str]]) -> str:
    """The page as text. Without JavaScript it shows the first map; it never asks anything of the network."""
    if not maps:
        raise UsageError("no_attention_maps")
    # Maps over the same tokens share one drawing, which the script recolours: layout is worked out in one place.
    drawings: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    figures = []
    for attention in maps:
        if (attention.rows, attention.columns) not in drawings:
            figures.append(f"<figure{' hidden' if drawings else ''}>\n{svg(attention)}\n</figure>")
            drawings[attention.rows, attention.columns] = len(drawings)
    data = {
        "top_level": TOP_LEVEL,
        "strong_level": STRONG_LEVEL,
        "drawings": [{"rows": _all_visible(rows), "columns": _all_visible(columns)} for rows, columns in drawings],
        "maps": [
            {
                "title": visible(attention.title),
                "drawing": drawings[attention.rows, attention.columns],
                "weights": np.minimum(attention.weights, 1).round(4).tolist(),
            }
            for attention in maps
        ],
    }
    return "\n".join([_head(heading), _top(maps, heading, facts), *figures, _tail(data)])


def _head(heading: str) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(visible(heading))}</title>
<style>
{STYLE}{_colours(LIGHT, LIGHT_INKS)}
@media (prefers-color-scheme: dark) {{
{_colours(DARK, DARK_INKS)}
}}
</style>
</head>"""


def _top(maps: Sequence[AttentionMap], heading: str, facts: Sequence[tuple[str, str]]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(visible(name))}</th><td>{escape(visible(value))}</td></tr>'
        for name, value in facts
    )
    options = "\n".join(
        f'<option value="{number}">{escape(visible(attention.title))}</option>' for number, attention in enumerate(maps)
    )
    table = f"<table>\n{rows}\n</table>" if facts else ""
    return f"""<body>
<main>
<h1>{escape(visible(heading))}</h1>
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


def _tail(data: dict[str, Any]) -> str:
    return f"""</main>
<script type="application/json" id="data">{_inert(data)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _inert(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _colours(scale: tuple[str, ...], inks: tuple[str, str]) -> str:
    rules = [f".q{step} {{ fill: {colour} }}" for step, colour in enumerate(scale)]
    rules += [f".weak {{ fill: {inks[0]} }}", f".strong {{ fill: {inks[1]} }}"]
    return "\n".join(rules)


def _all_visible(tokens: tuple[str, ...]) -> list[str]:
    return [visible(token) for token in tokens]
