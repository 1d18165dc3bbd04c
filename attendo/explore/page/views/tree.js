// The search as a tree: every hypothesis that was considered, what became of it and why.

import { ask } from "../api.js";
import { palette } from "../colour.js";
import { h, number, svg, visible } from "../dom.js";
import { CHANGES } from "../edits.js";
import { known, t } from "../i18n.js";
import { button, toggle } from "../parts/controls.js";
import { DECODER, ofTree } from "../requests.js";
import { fitted, framed, line, rect, text, textWidth } from "../scene.js";
import { current, update } from "../store.js";
import { View } from "../view.js";

const GAP = 24, HIGH = 34, TALL = 26;
const NARROWEST = 84, WIDEST = 170; // pixels of a box: as wide as its longest token needs
const MOST = 1500; // hypotheses that are drawn; of more, only those that were kept

export class Tree extends View {
  static name = "tree";
  static asks = ["model", "checkpoint", "text", ...CHANGES, ...DECODER];
  static draws = ["cuts"];

  load(state, signal) {
    return ask("/tree", ofTree(state), signal);
  }

  content(data, state) {
    this.place(data, state.cuts);
    this.saying = h("output", { class: "readout" }, t("tree.hint"));
    const edges = this.nodes.filter((node) => node.from).map((node) => (node.edge = edgeOf(node, this.boxWidth)));
    const marks = this.nodes.map((node) => (node.mark = this.markOf(node)));
    this.drawing = svg("svg", { class: "tree", role: "tree", "aria-label": t("tree.label"), width: this.width,
      height: this.height, viewBox: `0 0 ${this.width} ${this.height}`, onkeydown: (event) => this.pressed(event) },
      svg("g", { "aria-hidden": "true" }, ...this.steps(data).map(({ x, y, content, size, fill }) =>
        svg("text", { x, y, "font-size": size, fill }, content)), ...edges), ...marks);
    return [
      h("div", { class: "row controls" }, toggle("cuts", t("tree.cuts"), state.cuts),
        state.kind === "beam" ? h("span", { class: "note" }, t("tree.width", { beam: state.beam }))
          : h("span", { class: "note" }, t("tree.beam", { beam: state.beam }), " ",
          button(t("tree.use"), () => update({ kind: "beam" }), { class: "link" }))),
      this.left ? h("p", { class: "note" }, t("tree.many", { count: this.left })) : null,
      h("section", { class: "card" }, h("ul", { class: "legend" }, ["kept", "ended", "cut", "best"]
        .map((kind) => h("li", { class: kind }, t(`tree.${kind}`)))),
        h("p", { class: "note" }, t("tree.number")),
        (this.wide = h("p", { class: "note scrolls", hidden: true }, t("tree.scroll", { count: data.steps.length }))),
        (this.box = h("div", { class: "tree-scroll", tabindex: "0", role: "region", "aria-label": t("tree.label") },
          this.drawing)), this.saying),
      this.ranking(data),
    ].filter(Boolean);
  }

  draw() {
    super.draw();
    this.resized();
  }

  /** Where not all steps are in sight, it is said that there are more. */
  resized() {
    if (this.box?.isConnected) this.wide.hidden = this.box.scrollWidth <= this.box.clientWidth;
  }

  /** Columns are steps; within a column the hypotheses keep the order in which the search had them. */
  place(data, cuts) {
    const found = new Map(), winner = new Set();
    for (const step of data.steps) for (const node of step) found.set(node.id, { ...node });
    for (let at = found.get(data.ranking[0]?.id); at; at = found.get(at.parent)) winner.add(at.id);
    this.nodes = [];
    const few = found.size <= MOST;
    this.left = 0;
    let most = 1;
    const longest = Math.max(0, ...[...found.values()].slice(0, MOST).map((node) => textWidth(visible(node.piece), 13)));
    this.boxWidth = Math.round(Math.min(Math.max(longest + 58, NARROWEST), WIDEST));
    const wide = this.boxWidth + GAP;
    data.steps.forEach((step, column) => {
      const shown = step.filter((node) => (cuts && few) || node.kept || ended(node) || winner.has(node.id));
      this.left += cuts ? step.length - shown.length : 0;
      most = Math.max(most, shown.length);
      shown.forEach((given, row) => {
        const node = found.get(given.id);
        Object.assign(node, { column, row, x: 8 + column * wide, y: 30 + row * HIGH, from: found.get(node.parent),
          best: winner.has(node.id) });
        this.nodes.push(node);
      });
    });
    this.width = data.steps.length * wide + 8 - GAP + 8;
    this.height = 36 + most * HIGH;
  }

  steps(data) {
    return data.steps.map((_, n) => text(8 + n * (this.boxWidth + GAP), 16, t("tree.step", { step: n + 1 }),
      { size: 11, fill: palette().soft }));
  }

  markOf(node) {
    const first = node === this.nodes[0];
    const label = `${visible(node.piece)} ${number(node.score, 2)}, ${reason(node)}`;
    return svg("g", { class: `node${ended(node) ? " ended" : node.kept ? "" : " cut"}${node.best ? " best" : ""}`, role: "treeitem",
      "aria-selected": "false", tabindex: first ? 0 : -1, "aria-label": label, "aria-level": node.column + 1,
      transform: `translate(${node.x} ${node.y})`,
      onpointerenter: () => this.choose(node), onpointerleave: () => this.choose(null),
      onfocus: () => this.choose(node), onblur: () => this.choose(null) },
      svg("rect", { width: this.boxWidth, height: TALL, rx: 5 }),
      ended(node) ? svg("rect", { class: "end", x: this.boxWidth - 4, width: 4, height: TALL }) : "",
      svg("text", { x: 8, y: 17, class: "piece" }, fitted(visible(node.piece) || "∅", this.boxWidth - 54, 13)),
      svg("text", { x: this.boxWidth - 8, y: 17, class: "score", "text-anchor": "end" }, number(node.score, 2)));
  }

  choose(node) {
    const path = new Set();
    for (let at = node; at; at = at.from) path.add(at);
    this.drawing.classList.toggle("pointing", Boolean(node));
    for (const each of this.nodes) {
      each.mark.classList.toggle("path", path.has(each));
      each.edge?.classList.toggle("path", path.has(each));
      each.mark.setAttribute("aria-selected", String(each === node));
    }
    this.saying.textContent = node ? t("tree.node", { text: node.text, log: number(node.log_probability),
      score: number(node.score), reason: reason(node) }) : t("tree.hint");
  }

  /** Left to the parent, right to the first child, up and down within a step. */
  pressed(event) {
    const at = this.nodes.find((node) => node.mark === document.activeElement);
    const near = { ArrowLeft: () => at.from, ArrowRight: () => this.nodes.find((node) => node.from === at),
      ArrowUp: () => this.beside(at, -1), ArrowDown: () => this.beside(at, 1) }[event.key];
    if (!at || !near) return;
    event.preventDefault();
    const next = near();
    if (!next?.mark) return;
    for (const node of this.nodes) node.mark.setAttribute("tabindex", node === next ? 0 : -1);
    next.mark.focus();
  }

  beside(at, move) {
    return this.nodes.find((node) => node.column === at.column && node.row === at.row + move);
  }

  ranking(data) {
    return h("section", { class: "card" }, h("h3", {}, t("tree.ranking")),
      h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("tree.ranking") },
        h("table", { class: "wide" },
        h("thead", {}, h("tr", {}, ["rank", "text", "log", "score"].map((name) => h("th", { scope: "col" },
          t(`tree.${name}`))))),
        h("tbody", {}, data.ranking.map((each, n) => h("tr", {}, h("td", {}, String(n + 1)),
          h("td", {}, button(each.text || "∅", () => update({ target: each.text }),
            { class: "link", title: t("translate.look") })),
          h("td", { "data-number": "log" }, number(each.log_probability, 4)),
          h("td", { "data-number": "score" }, number(each.score, 4))))))));
  }

  picture(data) {
    const { accent, other, line: rule, ink, soft, faint, page } = palette();
    const items = this.steps(data);
    for (const node of this.nodes) if (node.from?.x !== undefined) items.push(
      line([[node.from.x + this.boxWidth, node.from.y + TALL / 2], [node.x, node.y + TALL / 2]], node.best ? accent : rule,
      { curved: true, width: node.best ? 2 : 1 }));
    for (const node of this.nodes) {
      items.push(rect(node.x, node.y, this.boxWidth, TALL, node.kept || ended(node) ? page : faint,
        { radius: 5, stroke: node.best ? accent : ended(node) ? other : rule }));
      if (ended(node)) items.push(rect(node.x + this.boxWidth - 4, node.y, 4, TALL, other));
      items.push(text(node.x + 8, node.y + 17, fitted(visible(node.piece), this.boxWidth - 54, 13),
        { size: 13, fill: node.kept ? ink : soft }));
      items.push(text(node.x + this.boxWidth - 8, node.y + 17, number(node.score, 2), { size: 11, anchor: "end", fill: soft }));
    }
    return framed({ width: this.width, height: this.height, items });
  }
}

const reason = (node) => (known(`reason.${node.reason}`) ? t(`reason.${node.reason}`) : node.reason);

/** A finished output: the search continues from the kept hypotheses only. */
const ended = (node) => ["ended", "limit"].includes(node.reason);

function edgeOf(node, width) {
  const [x, y, u, v] = [node.from.x + width, node.from.y + TALL / 2, node.x, node.y + TALL / 2], middle = (x + u) / 2;
  return svg("path", { class: `edge${node.kept || ended(node) ? "" : " cut"}${node.best ? " best" : ""}`,
    d: `M${x} ${y}C${middle} ${y} ${middle} ${v} ${u} ${v}` });
}
