// Many small maps on one canvas, a row a layer and a column a head, drawn a few at a time so that nothing freezes.

import { palette, pixels } from "../colour.js";
import { h, nextFrame, visible } from "../dom.js";
import { t } from "../i18n.js";
import { cells, fitted, framed, paint, rect, text, textWidth } from "../scene.js";
import { shrunk } from "../tensors.js";

const BUDGET = 12; // milliseconds of drawing between two frames
const MOST = 64; // cells of a small map in each direction
const GAP = 10, CLOSE = 4; // pixels between maps, and between many maps
const READABLE = 11; // pixels of a cell whose token can be read

/**
 * `data`: {rows, columns, map(row, column) → {values, rows, columns, limit?}, rowName(n), columnName(n), label,
 * saying(row, column), rowLabels?, columnLabels?, hint?, badge?(row, column) → {content, share, fill?, frame?}, state?(row, column) → {pinned, off}}.
 * Fires `pick` {row, column} on a click, Enter or the space bar.
 */
export class MapGrid extends HTMLElement {
  connectedCallback() {
    this.canvas = h("canvas", { role: "img", "aria-label": this.data.label });
    this.mark = h("div", { class: "mark cell", hidden: true });
    this.states = h("div", { class: "states" });
    this.readout = h("output", { class: "readout" }, this.hint);
    this.box = h("div", { class: "map-box", tabindex: "0", role: "group", id: this.data.id,
      "aria-label": t("grid.keys", { label: this.data.label }),
      onpointermove: (event) => this.choose(this.at(event)), onpointerdown: (event) => this.choose(this.at(event)),
      onpointerleave: (event) => { if (event.pointerType !== "touch") this.choose(null); },
      onclick: (event) => this.pick(this.at(event)), onkeydown: (event) => this.pressed(event),
      onblur: () => this.choose(null) },
      this.canvas, this.states, this.mark);
    this.replaceChildren(h("div", { class: "map-scroll" }, this.box), this.readout);
    this.whenResized = new ResizeObserver(([entry]) => this.fit(entry.contentRect.width));
    this.whenResized.observe(this);
  }

  get hint() {
    return this.data.hint ?? t("grid.hint");
  }

  disconnectedCallback() {
    this.whenResized?.disconnect();
    this.drawing = null;
  }

  fit(width) {
    if (!width || Math.abs(width - (this.width ?? 0)) < 1) return;
    this.width = width;
    this.repaint();
  }

  /** Frame and labels at once, then the maps. */
  async repaint() {
    if (!this.width) return;
    const drawing = (this.drawing = {});
    const begin = performance.now();
    this.layout = this.layoutFor(this.width);
    paint(this.canvas, { ...this.layout, items: [...this.labels(), ...this.badges()] });
    this.showStates();
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    let until = performance.now() + BUDGET, busy = performance.now() - begin;
    for (let row = 0; row < this.data.rows; row++) {
      for (let column = 0; column < this.data.columns; column++) {
        const from = performance.now();
        this.drawMap(context, row, column);
        busy += performance.now() - from;
        if (performance.now() < until) continue;
        await nextFrame();
        if (this.drawing !== drawing) return;
        until = performance.now() + BUDGET;
      }
    }
    performance.measure("attendo grid", { start: begin, detail: { busy } });
  }

  drawMap(context, row, column) {
    const map = this.small(row, column);
    const picture = (this.scratch ??= document.createElement("canvas"));
    if (picture.width !== map.columns || picture.height !== map.rows) Object.assign(picture,
      { width: map.columns, height: map.rows });
    picture.getContext("2d").putImageData(new ImageData(pixels(map.values, map.scale ?? "weights", map.limit ?? 1),
      map.columns, map.rows), 0, 0);
    const { x, y } = this.corner(row, column);
    context.drawImage(picture, x, y, this.layout.wide, this.layout.high);
  }

  small(row, column) {
    const map = this.data.map(row, column);
    return { ...map, ...shrunk(map.values, map.rows, map.columns, MOST) };
  }

  picture() {
    this.layout = this.layoutFor(this.width || 640);
    const maps = [];
    for (let row = 0; row < this.data.rows; row++) for (let column = 0; column < this.data.columns; column++) {
      const { x, y } = this.corner(row, column), map = this.small(row, column);
      maps.push(cells(x, y, this.layout.wide, this.layout.high, map, { limit: map.limit ?? 1, small: true }));
    }
    return framed({ ...this.layout, items: [...this.labels(), ...this.badges(), ...maps] });
  }

  layoutFor(width) {
    const { rows, columns } = this.data, first = this.data.map(0, 0);
    const left = this.data.rowName ? 34 : 0, top = 22, foot = this.data.badge ? 23 : 0;
    const gap = (width - left) / columns < 54 ? CLOSE : GAP;
    const tokens = this.tokenRoom((width - left) / columns - gap, first);
    const wide = Math.max(18, Math.min(this.data.largest ?? 150, (width - left) / columns - gap - tokens.left));
    // A map with a very long source is a strip: it keeps a height in which it can be seen.
    const high = Math.max(28, wide * 0.36, Math.min(wide * 1.3, wide * (first.rows / Math.max(1, first.columns))),
      tokens.top ? first.rows * READABLE : 0);
    return { left, top, foot, wide, high, gap, tokens, width: left + columns * (wide + gap + tokens.left),
      height: top + rows * (high + foot + gap + tokens.top) };
  }

  /** The room that the tokens of a map take beside it and above it: none if they could not be read. */
  tokenRoom(wide, { rows, columns }) {
    const { rowLabels, columnLabels } = this.data;
    if (!rowLabels || !rows || !columns) return { left: 0, top: 0 };
    const longest = (labels) => Math.min(78, Math.max(...labels.map((label) => textWidth(visible(label), 11))));
    const left = longest(rowLabels) + 8;
    if ((wide - left) / columns < READABLE || rows > 60) return { left: 0, top: 0 };
    return { left, top: longest(columnLabels) * 0.77 + 12 };
  }

  corner(row, column) {
    const { left, top, wide, high, foot, gap, tokens } = this.layout;
    return { x: left + tokens.left + column * (wide + gap + tokens.left),
      y: top + tokens.top + row * (high + foot + gap + tokens.top) };
  }

  labels() {
    const { soft } = palette(), { rows, columns, rowName, columnName } = this.data, items = [];
    for (let n = 0; n < columns; n++) items.push(text(this.corner(0, n).x + this.layout.wide / 2, 13,
      fitted(columnName(n), this.layout.wide + this.layout.gap - 2, 11), { anchor: "middle", size: 11, fill: soft }));
    if (this.layout.tokens.left) for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++)
      items.push(...this.tokensOf(row, column));
    if (rowName) for (let n = 0; n < rows; n++) items.push(text(0, this.corner(n, 0).y + this.layout.high / 2 + 4,
      rowName(n), { size: 11, fill: soft }));
    return items;
  }

  tokensOf(row, column) {
    const { rowLabels, columnLabels } = this.data, { wide, high, tokens } = this.layout, { x, y } = this.corner(row, column);
    const [across, down] = [wide / columnLabels.length, high / rowLabels.length];
    return [...rowLabels.map((label, n) => text(x - 5, y + (n + 0.5) * down + 4, fitted(visible(label), tokens.left - 6,
      11), { anchor: "end", size: 11 })),
      ...columnLabels.map((label, n) => text(x + (n + 0.5) * across + 2, y - 5, fitted(visible(label), 78, 11),
        { turn: -50, size: 11 }))];
  }

  badges() {
    if (!this.data.badge) return [];
    const { faint, ink, accent } = palette(), items = [];
    for (let row = 0; row < this.data.rows; row++) for (let column = 0; column < this.data.columns; column++) {
      const { x, y } = this.corner(row, column), { content, share, fill, frame } = this.data.badge(row, column);
      if (!content) continue;
      if (frame) items.push(rect(x - 4, y - 4, this.layout.wide + 8, this.layout.high + 8, frame, { radius: 3 }));
      const top = y + this.layout.high + 4;
      items.push(rect(x, top + 13, this.layout.wide, 3, faint), rect(x, top + 13,
        this.layout.wide * Math.min(Math.max(share, 0), 1), 3, fill ?? accent));
      items.push(text(x, top + 11, fitted(content, this.layout.wide, 11), { size: 11, fill: ink }));
    }
    return items;
  }

  /** Pinned and switched-off maps are marked by elements above the canvas: nothing needs to be drawn again. */
  showStates() {
    if (!this.data.state) return;
    const found = [];
    for (let row = 0; row < this.data.rows; row++) for (let column = 0; column < this.data.columns; column++) {
      const { pinned, off } = this.data.state(row, column);
      if (pinned || off) found.push(this.placed(h("div", { class: `mark ${off ? "off" : "pinned"}` },
        h("b", {}, off || pinned)), row, column));
    }
    this.states.replaceChildren(...found);
  }

  placed(element, row, column) {
    const { x, y } = this.corner(row, column);
    [["--x", x], ["--y", y], ["--w", this.layout.wide], ["--h", this.layout.high]].forEach(([name, value]) =>
      element.style.setProperty(name, `${value}px`));
    return element;
  }

  at(event) {
    if (!this.layout) return null; // a quick hand is here before the picture
    const { left, top } = this.canvas.getBoundingClientRect();
    const { wide, high, foot, gap, tokens } = this.layout;
    const column = Math.floor((event.clientX - left - this.layout.left) / (wide + gap + tokens.left));
    const row = Math.floor((event.clientY - top - this.layout.top) / (high + foot + gap + tokens.top));
    const inside = row >= 0 && column >= 0 && row < this.data.rows && column < this.data.columns;
    return inside ? { row, column } : null;
  }

  choose(chosen) {
    if (chosen?.row === this.chosen?.row && chosen?.column === this.chosen?.column) return;
    this.chosen = chosen;
    this.mark.hidden = !chosen;
    if (chosen) this.placed(this.mark, chosen.row, chosen.column);
    this.readout.textContent = chosen ? this.data.saying(chosen.row, chosen.column) : this.hint;
  }

  pick(chosen) {
    if (chosen) this.dispatchEvent(new CustomEvent("pick", { detail: chosen, bubbles: true }));
  }

  pressed(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e6],
      End: [0, 1e6] };
    const move = moves[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(this.chosen);
    }
    if (!move) return;
    event.preventDefault();
    const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const from = this.chosen;
    this.choose(from ? { row: clamp(from.row + move[0], this.data.rows),
      column: clamp(from.column + move[1], this.data.columns) } : { row: 0, column: 0 });
  }
}

customElements.define("map-grid", MapGrid);
