// One map with both axes on a canvas: pointed at with the mouse or the arrow keys, and readable as a table.

import { inkOn, palette } from "../colour.js";
import { h, nextFrame, number, visible } from "../dom.js";
import { t } from "../i18n.js";
import { cells, fitted, framed, line, paint, rect, text, textWidth } from "../scene.js";

const TABLE = 40; // rows and columns of the table; more would be a wall of numbers
const LABELLED = 9; // pixels that a label needs: of smaller cells every second, third ... has one
const LARGE = 40_000; // cells of a map that gets a frame of its own
const TALLEST = 900, LOWEST = 260, ROW = 20; // pixels: of a map with many rows, of one with few, of a row of those

/**
 * `data`: {values, rows, columns, rowLabels, columnLabels, label}, and as wanted {scale: "signs", limit, sums: true,
 * largest: 34 (pixels of a cell), wordless: true (no numbers in cells), write: (value) => text of a number}. NaN is
 * hidden. Fires `cell` {row, column} when a cell is pointed at, `pick` {row, column} on a click, Enter or the space bar.
 */
export class HeatMap extends HTMLElement {
  connectedCallback() {
    this.canvas = h("canvas", { role: "img", "aria-label": this.data.label });
    this.marks = ["row", "column", "cell", "pinned"].map((kind) => h("div", { class: `mark ${kind}`, hidden: true }));
    this.readout = h("output", { class: "readout" }, t("map.hint"));
    this.box = h("div", { class: "map-box", tabindex: "0", role: "group",
      "aria-label": t("map.keys", { label: this.data.label }),
      onpointermove: (event) => this.pointed(event), onpointerdown: (event) => this.pointed(event),
      onpointerleave: (event) => { if (event.pointerType !== "touch") this.choose(null); },
      onclick: (event) => { this.pointed(event); this.pick(); }, onkeydown: (event) => this.pressed(event),
      onblur: () => this.choose(null) }, this.canvas, ...this.marks);
    this.replaceChildren(h("div", { class: "map-scroll" }, this.box), this.readout, this.tableMaker());
    this.whenResized = new ResizeObserver(([entry]) => this.fit(entry.contentRect.width));
    this.whenResized.observe(this);
  }

  disconnectedCallback() {
    this.whenResized?.disconnect();
  }

  async fit(width) {
    if (!width || Math.abs(width - (this.width ?? 0)) < 1) return;
    this.width = width;
    if (this.data.rows * this.data.columns > LARGE) await nextFrame();
    if (this.isConnected) this.paint();
  }

  paint() {
    const begin = performance.now();
    this.scene = this.sceneFor(this.width);
    paint(this.canvas, this.scene);
    this.mark(); // the cells have moved
    performance.measure("attendo map", { start: begin });
  }

  /** The picture of this map, for the export. */
  picture() {
    return framed(this.sceneFor(this.width || 640));
  }

  sceneFor(width) {
    const { data } = this, { rows, columns, rowLabels, columnLabels } = data, colours = palette();
    const layout = (this.layout = layoutOf(data, width));
    const { left, top, wide, high } = layout;
    const items = [];
    if (!rows || !columns) return { width: 200, height: 24, items: [text(0, 16, t("map.empty"))] };
    items.push(cells(left, top, columns * wide, rows * high, data, { scale: data.scale ?? "weights",
      limit: data.limit ?? 1 }));
    labelled(rowLabels, high, (each, n, size) => items.push(text(left - 8, top + (n + 0.5) * high + size * 0.35,
      fitted(visible(each), left - 12, size), { anchor: "end", size })));
    labelled(columnLabels, wide, (each, n, size) => items.push(text(left + (n + 0.5) * wide + size * 0.2, top - 7,
      fitted(visible(each), layout.room, size), { turn: -50, size })));
    if (wide >= 30 && high >= 16 && !data.wordless) items.push(...numbersIn(data, layout));
    if (data.sums) items.push(...sumsBeside(data, layout, colours));
    items.push(line([[left, top], [left + columns * wide, top], [left + columns * wide, top + rows * high],
      [left, top + rows * high], [left, top]], colours.line));
    return { width: layout.width, height: layout.height, items };
  }

  pointed(event) {
    if (!this.layout) return; // a quick hand is here before the picture
    const { left, top } = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - left - this.layout.left) / this.layout.wide);
    const row = Math.floor((event.clientY - top - this.layout.top) / this.layout.high);
    const inside = row >= 0 && column >= 0 && row < this.data.rows && column < this.data.columns;
    this.choose(inside ? { row, column } : null);
  }

  pressed(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e6],
      End: [0, 1e6] };
    if (event.key === "Escape") this.choose(null);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick();
    }
    const move = moves[event.key];
    if (!move || !this.data.rows || !this.data.columns) return;
    event.preventDefault();
    const from = this.chosen ?? { row: 0, column: 0 };
    const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const to = this.chosen ? { row: clamp(from.row + move[0], this.data.rows),
      column: clamp(from.column + move[1], this.data.columns) } : from;
    this.choose(to);
  }

  pick() {
    if (this.chosen) this.dispatchEvent(new CustomEvent("pick", { detail: this.chosen, bubbles: true }));
  }

  /** Frames a cell that stays marked while others are pointed at. */
  pin(cell) {
    this.pinned = cell;
    this.mark();
  }

  /** Marks a cell, a whole row (`column` null) or nothing, and tells it. */
  choose(chosen, tell = true) {
    if (chosen?.row === this.chosen?.row && chosen?.column === this.chosen?.column) return;
    this.chosen = chosen;
    this.mark();
    this.readout.textContent = chosen && chosen.column !== null && chosen.row !== null ? this.saying(chosen)
      : t("map.hint");
    if (tell) this.dispatchEvent(new CustomEvent("cell", { detail: chosen, bubbles: true }));
  }

  mark() {
    if (!this.layout) return;
    const { left, top, wide, high } = this.layout, { rows, columns } = this.data;
    const { row = null, column = null } = this.chosen ?? {};
    const boxes = [
      row === null ? null : [left, top + row * high, columns * wide, high],
      column === null ? null : [left + column * wide, top, wide, rows * high],
      row === null || column === null ? null : [left + column * wide, top + row * high, wide, high],
      this.pinned ? [left + this.pinned.column * wide, top + this.pinned.row * high, wide, high] : null,
    ];
    this.marks.forEach((mark, n) => {
      mark.hidden = !boxes[n];
      if (boxes[n]) ["--x", "--y", "--w", "--h"].forEach((name, k) => mark.style.setProperty(name, `${boxes[n][k]}px`));
    });
  }

  saying({ row, column }) {
    const value = this.data.values[row * this.data.columns + column];
    const values = { row: visible(this.data.rowLabels[row]), column: visible(this.data.columnLabels[column]),
      value: Number.isNaN(value) ? t("map.hidden") : this.data.write?.(value) ?? number(value, 4) };
    return this.data.saying ? this.data.saying(values, { row, column }) : t("map.cell", values);
  }

  tableMaker() {
    const details = h("details", { class: "as-table" }, h("summary", {}, t("map.table")));
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) details.append(tableOf(this.data));
    });
    return details;
  }
}

export function tableOf({ values, rows, columns, rowLabels, columnLabels, label, write = number }) {
  const height = Math.min(rows, TABLE), width = Math.min(columns, TABLE);
  const cut = height < rows || width < columns;
  return h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": label },
    cut ? h("p", { class: "note" }, t("map.cut", { count: TABLE })) : null,
    h("table", {}, h("caption", { class: "unseen" }, label),
      h("thead", {}, h("tr", {}, h("td", {}), columnLabels.slice(0, width)
        .map((each) => h("th", { scope: "col" }, visible(each))))),
      h("tbody", {}, rowLabels.slice(0, height).map((each, r) => h("tr", {}, h("th", { scope: "row" }, visible(each)),
        Array.from({ length: width }, (_, c) => h("td", {}, Number.isNaN(values[r * columns + c]) ? "×"
          : write(values[r * columns + c]))))))));
}

/** Cells are squares, but for a map that would then be a thin strip, or a tower. */
function layoutOf(data, width) {
  const longest = (labels) => Math.max(12, ...labels.slice(0, 300).map((each) => textWidth(visible(each), 13)));
  const left = Math.min(longest(data.rowLabels) + 14, 120, width * 0.3);
  const room = Math.min(longest(data.columnLabels), 110);
  const right = Math.max(data.sums ? 76 : 10, room * 0.62 - 10);
  const wide = Math.max(2, Math.min(data.largest ?? 46, (width - left - right) / Math.max(1, data.columns)));
  const rows = Math.max(1, data.rows);
  const high = Math.max(2, Math.min(wide, TALLEST / rows), Math.min(ROW, LOWEST / rows));
  const top = room * 0.77 + 18;
  return { left, top, wide, high, room, width: left + data.columns * wide + right,
    height: top + data.rows * high + 4 };
}

/** As many labels as have room. */
function labelled(labels, cell, write) {
  const every = Math.ceil(LABELLED / cell), size = Math.min(13, Math.max(9, cell * 0.62));
  labels.forEach((each, n) => { if (n % every === 0) write(each, n, size); });
}

function numbersIn(data, { left, top, wide, high }) {
  const { columns, scale = "weights", limit = 1, write = shortNumber } = data;
  const items = [];
  data.values.forEach((value, n) => {
    const content = Number.isNaN(value) ? "×" : limit <= 1 && Math.abs(value) < 0.005 ? "" : write(value);
    if (!content) return;
    const [x, y] = [left + ((n % columns) + 0.5) * wide, top + (Math.floor(n / columns) + 0.5) * high + 4];
    items.push(text(x, y, content, { anchor: "middle", size: Math.min(11, wide * 0.34), fill: Number.isNaN(value)
      ? palette().soft : inkOn(value, scale, limit) }));
  });
  return items;
}

const shortNumber = (value) => (Math.abs(value) >= 0.995 ? value.toFixed(1) : Math.abs(value) < 0.005 ? "0"
  : value.toFixed(2).replace("0.", ".")).replace("-", "−");

function sumsBeside({ values, rows, columns }, { left, top, wide, high }, { accent, soft }) {
  const items = [];
  const x = left + columns * wide + 10;
  items.push(text(x, top - 7, t("map.sum"), { size: 11, fill: soft }));
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let c = 0; c < columns; c++) sum += values[r * columns + c];
    const y = top + (r + 0.5) * high;
    items.push(rect(x, y - Math.min(3, high / 3), 22 * Math.min(sum, 1.2), Math.min(6, high * 0.66), accent,
      { opacity: 0.75 }));
    if (high >= 11) items.push(text(x + 30, y + 4, number(sum, 2), { size: 11, fill: soft }));
  }
  return items;
}

customElements.define("heat-map", HeatMap);
