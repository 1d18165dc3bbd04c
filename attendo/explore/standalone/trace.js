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
  const first = () => { if (details.open && !place.dataset.head) show(place, Number(place.dataset.first)); };
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
