"""The style and the script of the page of a trace; both stand inside the page, which loads nothing."""

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
