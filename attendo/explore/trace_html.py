"""A trace as one self-contained HTML page in both languages."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from attendo.explore.attention_map import DARK, LIGHT, make_visible
from attendo.explore.formulas.catalogue import bind_formula, evaluate_facts, explain_symbols, find_formula
from attendo.explore.heatmap_html import escape_json
from attendo.explore.i18n import LANGUAGES, Language
from attendo.explore.trace_text import ELLIPSIS, heading, make_value_table, origin, token_labels, trace_string
from attendo.model.trace_layers import TracedTensor
from attendo.text_model import Trace

_MAX_ROWS, _MAX_COLUMNS = 8, 8
STYLE = """\
:root {
  --ground: #f4f7f9; --paper: #ffffff; --ink: #12303f; --muted: #55707d; --line: #d5e0e6; --accent: #02658d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0c1418; --paper: #121c21; --ink: #e2edf2; --muted: #91a9b4; --line: #2a3b43; --accent: #68caee;
  }
}
[hidden] { display: none !important }
html[data-language="en"] [lang="zh"], html[data-language="zh"] [lang="en"] { display: none }
body {
  margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", "Helvetica Neue", "Noto Sans", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", sans-serif;
}
main { max-width: 64rem; margin: 2rem auto; padding: 0 1.5rem }
header { display: flex; justify-content: space-between; align-items: center; gap: 1rem }
h1 { font-size: 1.5rem; margin: 0 }
h2 { display: inline; font-size: 1.05rem; margin: 0 }
details {
  background: var(--paper); border: 1px solid var(--line); border-radius: 10px; margin: .75rem 0; padding: 0 1.25rem;
}
summary { cursor: pointer; padding: .7rem 0 }
article { border-top: 1px solid var(--line); padding: .8rem 0 }
article p { margin: .15rem 0; overflow-wrap: anywhere }
.name code, .rows, .shapes, .numbers, .values {
  font-family: ui-monospace, "SF Mono", "Cascadia Mono", "Noto Sans Mono", "DejaVu Sans Mono", monospace;
  font-size: .85rem;
}
.name code { color: var(--accent) }
.rows { color: var(--muted); border: 1px solid var(--line); border-radius: 4px; padding: 0 .3rem }
.formula { font-size: 1.1rem; font-family: "STIX Two Math", "Cambria Math", "Noto Serif", Georgia, serif }
.numbers { color: var(--accent) }
.muted { color: var(--muted); font-size: .9rem }
.scroll { overflow-x: auto }
.pairs th, .pairs td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0 }
.pairs th { color: var(--muted); font-weight: 400; white-space: nowrap }
.tokens .token {
  display: inline-block; border: 1px solid var(--line); border-radius: 4px; padding: 0 .35rem; margin: .1rem;
}
.values { border-collapse: collapse; margin: .4rem 0 }
.values th, .values td {
  padding: .12rem .6rem; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums;
}
.values th { color: var(--muted); font-weight: 400 }
.values tbody th { text-align: left }
.values .token, .values .top { text-align: left }
.top span { margin-right: 1rem }
button {
  font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--line); border-radius: 6px;
  padding: .3rem .7rem; cursor: pointer;
}
:is(button, summary):focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
.maps { padding: .5rem 0 }
.heads { display: flex; flex-wrap: wrap; gap: .5rem }
.heads button { padding: .3rem; text-align: center; font-size: .8rem; color: var(--muted) }
.heads button[aria-pressed="true"] { border-color: var(--accent); color: var(--accent) }
canvas { display: block; image-rendering: pixelated; width: 84px; height: 84px }
.map { border-collapse: separate; border-spacing: 2px; font-size: .8rem; margin: .5rem 0 }
.map td { width: 26px; height: 26px; border-radius: 4px; padding: 0 }
.map th { font-weight: 400; color: var(--muted); padding: 0 .4rem; text-align: right; white-space: nowrap }
.map thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; padding: .4rem 0 }
.map .hot { color: var(--accent); font-weight: 700 }
output { display: block; min-height: 1.5em; font-size: .9rem }
output b { color: var(--accent); font-variant-numeric: tabular-nums }
"""
SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const language = () => root.dataset.language;
const most = 96; // rows and columns of a map with its tokens: more would make the page wait
const colour = (weight) => {
  const scale = data.scales[dark.matches ? "dark" : "light"];
  return scale[Math.round(weight * (scale.length - 1))];
};
const make = (kind, text) => {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  return element;
};
const both = (words) => {
  const parts = Object.entries(words).map(([name, text]) => {
    const part = make("span", text);
    part.lang = name;
    return part;
  });
  return parts;
};
const named = (words, value) => Object.fromEntries(
  Object.entries(words).map(([name, text]) => [name, text.replace("#", value)]));

function weightsOf(site) {
  const bytes = Uint8Array.from(atob(site.weights), (sign) => sign.charCodeAt(0));
  const [, rows, columns] = site.shape;
  return (head, row, column) => bytes[(head * rows + row) * columns + column] / 255;
}

function thumbnail(site, weight, head) {
  const [, rows, columns] = site.shape;
  const canvas = make("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const pen = canvas.getContext("2d");
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) {
      pen.fillStyle = colour(weight(head, row, column));
      pen.fillRect(column, row, 1, 1);
    }
  return canvas;
}

function map(site, weight, head, readout) {
  const table = make("table");
  table.className = "map";
  const top = table.createTHead().insertRow();
  top.append(make("td"), ...site.columns.slice(0, most).map((token) => make("th", token)));
  const body = table.createTBody();
  site.rows.slice(0, most).forEach((token, row) => {
    const line = body.insertRow();
    line.append(make("th", token));
    site.columns.slice(0, most).forEach((_, column) => {
      const cell = line.insertCell();
      const value = weight(head, row, column);
      cell.style.background = colour(value);
      cell.addEventListener("pointerenter", () => {
        const digits = make("b", value.toFixed(2));
        const [left, right] = [token, site.columns[column]].map((each) => make("bdi", each));
        readout.replaceChildren(left, " ← ", right, "  ", digits);
        line.cells[0].classList.add("hot");
        top.cells[column + 1].classList.add("hot");
      });
      cell.addEventListener("pointerleave", () => {
        line.cells[0].classList.remove("hot");
        top.cells[column + 1].classList.remove("hot");
      });
    });
  });
  return table;
}

function show(place, head) {
  const site = data.sites[place.dataset.site];
  const weight = weightsOf(site);
  const heads = make("div");
  heads.className = "heads";
  for (let number = 0; number < site.shape[0]; number++) {
    const button = make("button");
    button.type = "button";
    button.setAttribute("aria-pressed", number === head);
    button.append(thumbnail(site, weight, number), ...both(named(data.words.head, number)));
    button.addEventListener("click", () => { show(place, number); });
    heads.append(button);
  }
  const readout = make("output");
  readout.append(...both(data.words.point));
  const scroll = make("div");
  scroll.className = "scroll";
  scroll.append(map(site, weight, head, readout));
  const caption = make("p");
  caption.className = "muted";
  caption.append(...both(data.words[place.dataset.site.startsWith("encoder") ? "maps_source" : "maps"]));
  for (const [key, count] of [["more_rows", site.rows.length], ["more_columns", site.columns.length]])
    if (count > most) caption.append(" ", ...both(named(data.words[key], count - most)));
  place.dataset.head = head;
  place.replaceChildren(heads, readout, scroll, caption);
  place.hidden = false;
}

const places = [...document.querySelectorAll(".maps")];
for (const place of places) {
  const details = place.closest("details");
  const first = () => { if (details.open && !place.dataset.head) show(place, 0); };
  details.addEventListener("toggle", first);
  first();
}
dark.addEventListener("change", () => {
  for (const place of places) if (place.dataset.head) show(place, Number(place.dataset.head));
});
const button = document.getElementById("language");
button.hidden = false;
button.addEventListener("click", () => {
  root.dataset.language = root.lang = language() === "en" ? "zh" : "en";
});
"""


def render_trace_html(trace: Trace, language: Language = "en") -> str:
    """Return the page, initially in `language`. Only the maps need JavaScript. It makes no network requests."""
    parts = [_page_header(trace), *_render_layers(trace), _sizes(trace), _output(trace), _facts(trace)]
    body = "\n".join(parts)
    return f"""{_html_head(language)}
<body>
<main>
{body}
</main>
<script type="application/json" id="data">{escape_json(_maps(trace))}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _html_head(language: Language) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="{language}" data-language="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>attendo · {trace_string("title", language)}</title>
<style>
{STYLE}
</style>
</head>"""


def _page_header(trace: Trace) -> str:
    lines = "\n".join(
        f'<tr><th scope="row">{_render_string(key)}</th><td class="tokens">{_tokens(pieces)}</td></tr>'
        for key, pieces in heading(trace)
    )
    notes = [_render_string(origin(trace)), f"{_render_string('loss')} {trace.loss:.4f}"]
    if trace.unknown:
        notes.append(f"{_render_string('unknown')}: {_tokens(trace.unknown)}")
    if not trace.masked:
        notes.append(_render_string("no_mask"))
    notes += [
        f"{_render_string('scaled')}: {escape(site)} {escape(str(dict(scales)))}"
        for site, scales in trace.heads.items()
    ]
    return f"""<header>
<h1>{_render_string("title")}</h1>
<button type="button" id="language" hidden>{_render_string("language")}</button>
</header>
<table class="pairs">
{lines}
</table>
<p class="muted">{"; ".join(notes)}</p>"""


def _render_layers(trace: Trace) -> Iterator[str]:
    for side, stack, layers in (
        ("source", "encoder", trace.encoder_layers),
        ("target", "decoder", trace.decoder_layers),
    ):
        if not layers and stack == "encoder":
            continue
        yield _section(_render_string(f"from_{side}"), _entries(trace, f"{side}."))
        for layer in layers:
            for part in ("self", "cross", "feed_forward"):
                place = f"{stack}.{layer}.{part}"
                if f"{place}.output" in trace:
                    yield _sub_layer(trace, place)
        yield _section(_render_string("stack_output"), _entry(trace, trace.entries[f"{stack}.output"]))


def _sub_layer(trace: Trace, sub_layer: str) -> str:
    stack, layer, part = sub_layer.split(".")
    name = "masked_self" if (stack, part) == ("decoder", "self") else part
    title = _language_spans(
        trace_string("titled", language, trace_string(f"{stack}_layer", language, layer), trace_string(name, language))
        for language in LANGUAGES
    )
    maps = "" if part == "feed_forward" else f'<div class="maps" data-site="{sub_layer}" hidden></div>'
    return _section(title, maps + _entries(trace, f"{sub_layer}."), is_open=layer == "0" and part == "self")


def _section(title: str, content: str, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}>\n<summary><h2>{title}</h2></summary>\n{content}\n</details>"


def _entries(trace: Trace, prefix: str) -> str:
    return "\n".join(_entry(trace, each) for name, each in trace.entries.items() if name.startswith(prefix))


def _entry(trace: Trace, entry: TracedTensor) -> str:
    formula = find_formula(entry)
    text, _, shapes = bind_formula(entry).partition(" : ")
    told = _language_spans(formula.explain(language) for language in LANGUAGES)
    symbols = _language_spans(
        "; ".join(f"{symbol}: {meaning}" for symbol, meaning in explain_symbols(formula, language).items())
        for language in LANGUAGES
    )
    return f"""<article>
<p class="name"><code>{escape(entry.name)}</code> <span class="rows">{escape(" ".join(formula.spec_ids))}</span></p>
<p class="formula">{escape(text)} <span class="shapes">: {escape(shapes)}</span></p>
<p class="muted">{told} <small>{symbols}</small></p>
{_values(trace, entry)}
</article>"""


def _values(trace: Trace, entry: TracedTensor) -> str:
    shown = make_value_table(trace, entry.name, max_size=(_MAX_ROWS, _MAX_COLUMNS))
    columns = "".join(f'<th scope="col">{_token(each)}</th>' for each in shown.columns or ())
    head = f"<thead><tr><td></td>{columns}</tr></thead>" if columns else ""
    end = f"<td>{ELLIPSIS}</td>" if shown.more_columns else ""
    rows = "\n".join(
        f'<tr><th scope="row">{_token(label)}</th>{"".join(f"<td>{each}</td>" for each in cells)}{end}</tr>'
        for label, cells in zip(shown.rows, shown.cells, strict=True)
    )
    more = f"<p class='muted'>{_render_string('more_rows', shown.more_rows)}</p>" if shown.more_rows else ""
    which = f"<p class='muted'>{_render_string('head', 0)}</p>" if entry.value.dim() == 3 else ""
    return f'{which}<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>{more}'


def _sizes(trace: Trace) -> str:
    keys = ("place", "entering", "adding", "leaving", "share", "gain")
    rows = "\n".join(
        f'<tr><th scope="row">{each.place}</th><td>{each.entering:.2f}</td><td>{each.adding:.2f}</td>'
        f"<td>{each.leaving:.2f}</td><td>{each.share:.0%}</td><td>{each.gain:.2f}</td></tr>"
        for each in trace.sizes()
    )
    return _section(_render_string("sizes"), _table(keys, rows))


def _output(trace: Trace) -> str:
    keys = ("step", "token", "probability", "entropy", "eos", "top")
    rows = "\n".join(
        f'<tr><th scope="row">{t}</th><td class="token">{_token(each.piece)}</td><td>{each.probability:.3f}</td>'
        f"<td>{each.entropy:.2f}</td><td>{each.eos_probability:.3f}</td><td class='top'>"
        + " ".join(f"<span>{_token(one.piece)} {one.probability:.3f}</span>" for one in each.top)
        + "</td></tr>"
        for t, each in enumerate(trace.steps(5))
    )
    return _section(_render_string("output"), _entries(trace, "output.") + _table(keys, rows), is_open=True)


def _facts(trace: Trace) -> str:
    told = "\n".join(
        f'<article><p class="name"><span class="rows">{escape(" ".join(formula.spec_ids))}</span></p>'
        f'<p class="formula">{escape(formula.render())}</p>'
        f'<p class="numbers">{escape(make_visible(numbers)) if numbers else _render_string("not_here")}</p>'
        f'<p class="muted">{_language_spans(formula.explain(language) for language in LANGUAGES)}</p></article>'
        for formula, numbers in evaluate_facts(trace)
    )
    return _section(_render_string("facts"), told)


def _table(keys: Iterable[str], rows: str) -> str:
    columns = "".join(f'<th scope="col">{_render_string(key)}</th>' for key in keys)
    head = f"<thead><tr>{columns}</tr></thead>"
    return f'<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>'


def _maps(trace: Trace) -> dict[str, Any]:
    """Return the data of the script. Weights have 8 bits, the resolution of a screen colour."""
    sites = {}
    for name, entry in trace.entries.items():
        if name.endswith(".weights"):
            rows, columns = token_labels(trace, name)
            levels = (entry.value.clamp(0, 1) * 255).round().byte().numpy()
            sites[entry.site] = {
                "shape": list(entry.shape),
                "rows": [make_visible(each) for each in rows or ()],
                "columns": [make_visible(each) for each in columns or ()],
                "weights": base64.b64encode(levels.tobytes()).decode(),
            }
    keys = ("point", "maps", "maps_source", "head", "more_rows", "more_columns")
    words = {key: {language: trace_string(key, language, "#") for language in LANGUAGES} for key in keys}
    return {"sites": sites, "words": words, "scales": {"light": LIGHT, "dark": DARK}}


def _tokens(pieces: Iterable[str]) -> str:
    return " ".join(f"<span class='token'>{_token(piece)}</span>" for piece in pieces)


def _token(piece: str) -> str:
    return f"<bdi>{escape(make_visible(piece))}</bdi>" if piece else ""


def _render_string(key: str, *values: object) -> str:
    return _language_spans(trace_string(key, language, *values) for language in LANGUAGES)


def _language_spans(texts: Iterable[str]) -> str:
    pairs = zip(LANGUAGES, texts, strict=True)
    return "".join(f'<span lang="{language}">{escape(text)}</span>' for language, text in pairs)
