// Every operation of one pass in order. The open one shows its matrices, and how each cell comes about.

import { ask } from "../api.js";
import { h, meter, number, visible, whole } from "../dom.js";
import { CHANGES } from "../edits.js";
import { colon, language, space, t } from "../i18n.js";
import { operationTitle, stepTitle } from "../names.js";
import { Calculation, explain } from "../parts/calculation.js";
import { blockOf, matrixOf, plain } from "../parts/cell-story.js";
import { button, counted, select } from "../parts/controls.js";
import "../parts/heat-map.js";
import { maths } from "../parts/mathml.js";
import { DECODER, ofCalculation, withChanges } from "../requests.js";
import { stacked, tableScene } from "../scene.js";
import { current, update } from "../store.js";
import { View } from "../view.js";

const COLUMNS = ["shapes", "norm_in", "norm_out", "share", "gain", "time"], OPERAND = 32; // rows and columns drawn

export class Calculator extends View {
  static name = "calculator";
  static asks = ["model", "checkpoint", "text", "target", ...CHANGES, "operation", "head", "first_row", "first_column",
    ...DECODER];
  static draws = ["cell"];

  async load(state, signal) {
    const list = await ask("/operations", withChanges(state), signal);
    const open = openOf(list, state);
    const answer = await ask("/calculation", ofCalculation(state, open), signal);
    return { list, open, found: Calculation.of(answer) };
  }

  /** What a page without a server can show: all operations of the open row. */
  async frames(state) {
    const list = await ask("/operations", withChanges(state));
    const row = rowOf(list, openOf(list, state).name);
    for (const step of row.steps) await ask("/calculation", ofCalculation({ ...state, first_row: 0, first_column: 0 },
      step));
  }

  content({ list, open, found }, state) {
    const top = this.nav?.querySelector(".operations")?.scrollTop ?? 0;
    this.nav = this.navigation(list, open);
    requestAnimationFrame(() => { const scrolled = this.nav.querySelector(".operations"); if (scrolled) {
      scrolled.scrollTop = top; reveal(scrolled.querySelector("[aria-current]"), scrolled); } });
    this.story = h("section", { class: "card story", "aria-label": t("calculator.story") });
    this.result = this.resultMap(list, open, found);
    this.operands = operandsOf(found, list.formulas[open.formula], open);
    this.tell(null);
    requestAnimationFrame(() => this.mark());
    return [h("div", { class: "calculator" }, this.nav, h("div", { class: "operation" },
      this.header(list, open, found, state), h("div", { class: "result-and-story" },
        h("section", { class: "card" }, h("h3", {}, t("calculator.result"), " ",
          h("small", {}, shape(open.shape))), this.pager(found), this.result), this.story),
      this.operands.length ? h("div", { class: "pair" }, this.operands.map(({ card }) => card)) : null)),
      this.table(list)];
  }

  patch(changed) {
    if (changed.has("cell") && changed.size === 1 && this.story?.isConnected && !this.failed) this.tell(null);
    else this.draw();
  }

  navigation(list, open) {
    const groups = [];
    for (const row of list.rows) {
      const title = groupOf(row.name);
      if (groups.at(-1)?.title !== title) groups.push({ title, rows: [] });
      groups.at(-1).rows.push(row);
    }
    return h("nav", { class: "card operations-nav", "aria-label": t("calculator.operations") },
      h("div", { class: "operations", onkeydown: walk }, groups.map(({ title, rows }) => [h("h3", {}, title),
        h("ul", {}, rows.map((row) => this.entry(row, open)))])));
  }

  entry(row, open) {
    const isOpen = row.steps.some((step) => step.name === open.name);
    const title = row.steps.length > 1 ? rowTitle(row.name) : stepTitle(row.name);
    return h("li", { class: isOpen ? "open" : "" },
      h("button", { type: "button", class: "link", id: `operation-${row.name}`, "data-row": row.name,
        "aria-expanded": row.steps.length > 1 ? String(isOpen) : null,
        "aria-current": isOpen && row.steps.length === 1 ? "true" : null,
        onclick: () => choose(mainStep(row)) }, title),
      isOpen && row.steps.length > 1 ? h("ol", {}, row.steps.map((step) => h("li", {},
        h("button", { type: "button", class: "link", id: `operation-${step.name}`,
          "aria-current": step.name === open.name ? "true" : null, onclick: () => choose(step) },
        stepTitle(step.name))))) : null);
  }

  header(list, open, found, state) {
    const steps = list.rows.flatMap((row) => row.steps), at = steps.findIndex((step) => step.name === open.name);
    const formula = list.formulas[open.formula], symbols = Object.entries(formula.symbols[language()] ?? {});
    const move = (to, name, sign) => button(sign, () => choose(steps[to]), { id: `operation-${name}`,
      disabled: !steps[to], "aria-label": t(`calculator.${name}`), title: t(`calculator.${name}`) });
    return h("section", { class: "card formula-card" },
      h("div", { class: "row" }, h("h3", {}, operationTitle(open.name)),
        h("div", { class: "row end" }, found.answer.head === null ? null : select("head", t("head"), found.answer.head,
          counted(found.answer.heads, "head")), move(at - 1, "before", "‹"), move(at + 1, "after", "›"))),
      h("p", { class: "maths" }, maths(formula.tex.replaceAll("{x}", open.letter), { block: true,
        label: formula.text.replaceAll("{x}", open.letter) })),
      h("p", {}, formula.explain[language()]),
      symbols.length ? h("p", { class: "note" }, symbols.map(([name, meaning]) => `${name}${colon()}${meaning}`).join(" · "))
        : null);
  }

  resultMap(list, open, found) {
    const { rows, columns, kind } = found.answer, label = operationTitle(open.name);
    return h("heat-map", { id: "result", data: { ...matrixOf(found, "result", found.labels(rows),
      found.labels(columns)), label, largest: columns.axis === "ids" ? 60 : 40,
      ...(isWeights(open) ? { scale: "weights", limit: 1, sums: columns.axis !== "vocabulary" } : {}),
      ...(isWhole(open) ? { write: (value) => String(Math.round(value)) } : {}),
      saying: ({ row, column, value }) => t(kind === "probabilities" ? "calculator.predicting" : "calculator.cell",
        { row, column, value }) },
      oncell: ({ detail }) => this.tell(detail && detail.row !== null && detail.column !== null ? detail : null),
      onpick: ({ detail }) => update({ cell: `${detail.row + rows.first},${detail.column + columns.first}` },
        { quiet: true }) });
  }

  /** Shows how the cell that is pointed at comes about; without one the chosen cell. */
  tell(pointed) {
    const { found, open } = this.data, { rows, columns } = found.answer;
    const at = pointed ?? chosenCell(found, current().cell);
    const names = [found.labels(rows)[at.row], found.labels(columns)[at.column]];
    this.told = { at, blocks: explain(found, at.row, at.column), names };
    this.story.replaceChildren(h("h3", {}, `${stepTitle(open.name)}[`, visible(names[0]) || "·", ", ",
      visible(names[1]), "] = ", h("span", { class: "value", "data-cell": `${at.row},${at.column}` },
        cellText(found, open, at))), ...this.told.blocks.map((block) => blockOf(block, found)));
    if (!pointed) this.result.pin(at);
    this.mark();
  }

  /** Marks the rows and columns of the operands that the cell is computed from. */
  mark() {
    for (const { map, mark } of this.operands) if (map.isConnected) map.choose(mark(this.told.at), false);
  }

  pager(found) {
    const { rows, columns } = found.answer;
    const step = (axis, name) => (axis.count < axis.total ? h("span", { class: "pager" },
      button("‹", () => update({ [name]: Math.max(0, axis.first - OPERAND), cell: "" }), { id: `${name}-less`,
        disabled: axis.first === 0, "aria-label": t(`calculator.${name}.less`) }),
      h("span", {}, t(`calculator.${name}`, { first: axis.first, last: axis.first + axis.count - 1,
        total: axis.total })),
      button("›", () => update({ [name]: axis.first + OPERAND, cell: "" }), { id: `${name}-more`,
        disabled: axis.first + axis.count >= axis.total, "aria-label": t(`calculator.${name}.more`) })) : null);
    const pagers = [step(rows, "first_row"), step(columns, "first_column")].filter(Boolean);
    return [h("p", { class: "note" }, t(`calculator.rows.${rows.axis}`), space(), t(`calculator.columns.${columns.axis}`)),
      pagers.length ? h("div", { class: "row pagers" }, pagers) : null];
  }

  /** All rows with shapes, norms and time. */
  table({ rows }) {
    const total = rows.reduce((sum, row) => sum + (row.microseconds ?? 0), 0);
    return h("details", { class: "card as-table all-operations" }, h("summary", {}, t("calculator.total",
      { count: rows.length, time: whole(total) })),
      h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("calculator.operations") },
        h("table", { class: "wide" }, h("caption", { class: "unseen" }, t("calculator.operations")),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("calculator.name")), COLUMNS.map((name) =>
            h("th", { scope: "col", title: t(`calculator.${name}.explain`) }, t(`calculator.${name}`))))),
          h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, operationTitle(row.name)),
            h("td", {}, `${shape(row.shape_in)} → ${shape(row.shape_out)}`),
            h("td", { "data-number": "norm_in" }, number(row.norm_in, 2)),
            h("td", { "data-number": "norm_out" }, number(row.norm_out, 2)),
            h("td", {}, row.share === null ? "–" : meter(row.share)), h("td", {}, number(row.gain, 2)),
            h("td", {}, row.microseconds === null ? "–" : number(row.microseconds, 0))))))));
  }

  subject() {
    const { open, found } = this.data;
    return [operationTitle(open.name), found.answer.head === null ? "" : t("head.n", { n: found.answer.head })]
      .filter(Boolean).join(" · ");
  }

  picture({ open }) {
    const table = this.told.blocks.flatMap(({ tex, terms, softmax }) => (terms ? [...terms.rows
      .map(([label, a, b, value]) => [label, `${a} × ${b}`, value]), ...(terms.rest ? [[t("calculator.rest",
        { count: terms.rest[0] }), "", terms.rest[1]]] : []), ["∑", "", terms.total]]
      : softmax ? softmax.rows.map(({ label, cells }) => [visible(label), cells[0], `${cells[1]} → ${cells[2]}`])
        : [[tex.replace(/\\cdot/g, "·").replace(/\\frac\{([^}]*)\}\{([^}]*)\}/g, "($1)/($2)").replace(/[\\{}]/g, ""), "",
          ""]]));
    return stacked([{ title: `${this.subject()} ${shape(open.shape)}`, scene: this.result.sceneFor(
      this.result.width || 480) }, { title: this.story.querySelector("h3").textContent,
      scene: tableScene(["", "", ""], table) }, ...this.operands.map(({ map, title }) => ({ title,
        scene: map.sceneFor(map.width || 320) }))]);
  }

  exported({ list, open, found }) {
    return { operation: open.name, head: found.answer.head, formula: list.formulas[open.formula].text,
      rows: found.labels(found.answer.rows), columns: found.labels(found.answer.columns),
      result: Array.from(found.values("result"), (value) => (Number.isFinite(value) ? value : null)),
      operations: list.rows };
  }
}

const LEFT = { contract: "f(H)", heads_joined: "\\text{Concat}" }; // what other linear maps read is named by the step
const shape = (sizes) => `[${sizes.join(", ")}]`;
const rowOf = (list, name) => list.rows.find((row) => row.steps.some((step) => step.name === name));
const isWeights = ({ formula }) => ["softmax", "shares", "probabilities"].includes(formula);
const isWhole = ({ formula }) => ["tokens", "buckets"].includes(formula);
/** The step that a row opens with: of an attention the scores. */
const mainStep = (row) => row.steps.find((step) => step.name.endsWith(".scores")) ?? row.steps.at(-1);
const choose = ({ name }) => update({ operation: name, first_row: 0, first_column: 0, cell: "" });

/** The open operation; without a valid one in the address, the first scores of the decoder. */
function openOf(list, state) {
  const steps = list.rows.flatMap((row) => row.steps);
  return steps.find((step) => step.name === state.operation)
    ?? steps.find((step) => step.name === "decoder.0.cross.scores")
    ?? steps.find((step) => step.name.endsWith(".scores")) ?? steps[0];
}

function groupOf(name) {
  const [stack, layer, rest] = name.split(".");
  if (rest) return `${t(`stack.${stack}`)} · ${t("layer.n", { n: layer })}`;
  return t(`stack.${stack}`);
}

function rowTitle(name) {
  const parts = name.split(".");
  return parts.length === 3 ? t(`kind.${parts[2]}`) : stepTitle(name);
}

/** The cell of the address if it is in the window, otherwise the largest value of the first row. */
function chosenCell(found, text) {
  const { rows, columns } = found.answer, [row, column] = text.split(",").map(Number);
  const at = { row: row - rows.first, column: column - columns.first };
  if (text && at.row >= 0 && at.row < rows.count && at.column >= 0 && at.column < columns.count) return at;
  const first = Array.from(found.row("result", 0), (value) => (Number.isFinite(value) ? value : -1e9));
  return { row: 0, column: first.indexOf(Math.max(...first)) };
}

function cellText(found, open, { row, column }) {
  const value = found.at("result", row, column);
  return isWhole(open) ? String(Math.round(value)) : Number.isFinite(value) ? number(value, 4) : "−∞";
}

/** The operands of an operation, and which of their cells belong to a cell of the result. */
function operandsOf(found, formula, open) {
  const { answer } = found, { kind, rows, columns } = answer, rowLabels = found.labels(rows);
  const weight = formula.tex.match(/W_(?:\\text\{\w+\}|\w)/g)?.at(-1) ?? "W";
  const dims = (count) => Array.from({ length: Math.min(count, OPERAND) }, (_, n) => String(n));
  const tokens = (axis) => found.labels({ axis, first: 0, count: 1e9 });
  const keys = open.name.startsWith("encoder") || open.name.includes(".cross.") ? "source" : "read";
  const make = (name, symbol, labels, across, mark, more = {}) => {
    const map = h("heat-map", { data: { ...matrixOf(found, name, labels, across), label: plain(symbol), largest: 30,
      wordless: true, saying: (said) => t("calculator.cell", said), ...more } });
    const cut = found.shape(name).some((size, n) => size > [labels, across][n].length);
    return { map, mark, title: plain(symbol), card: h("section", { class: "card" }, h("h3", {}, maths(symbol), " ",
      h("small", {}, shape(found.shape(name)), cut ? ` · ${t("calculator.cut", { count: OPERAND })}` : "")), map) };
  };
  const ofRow = ({ row }) => ({ row, column: null }), ofColumn = ({ column }) => ({ row: null, column });
  const vectors = () => make("left", LEFT[answer.formula.replace("_unbiased", "")] ?? open.letter, rowLabels, dims(found.shape("left")[1]), ofRow);
  const same = (name, symbol) => make(name, symbol, rowLabels, found.labels(columns), (at) => at);
  switch (kind) {
    case "linear":
    case "sigmoid":
      return [vectors(), make("right", weight, dims(found.shape("right")[0]), found.labels(columns), ofColumn)];
    case "attention":
      return [make("left", "Q", rowLabels, dims(found.shape("left")[1]), ofRow),
        make("right", "K", tokens(keys).slice(0, found.shape("right")[0]), dims(found.shape("right")[1]),
          ({ column }) => ({ row: column, column: null }))];
    case "mixture":
      return [make("weights", "A", rowLabels, tokens(keys).slice(0, found.shape("weights")[1]), ofRow,
        { scale: "weights", limit: 1, sums: true }), make("right", "V", tokens(keys).slice(0, found.shape("right")[0]),
        found.labels(columns), ofColumn)];
    case "sum":
      return [same("left", open.name.endsWith(".residual") ? open.letter : "E"),
        same("right", open.name.endsWith(".residual") ? "\\text{Sublayer}" : "P")];
    case "gate":
      return [same("left", "H_\\text{gate}"), same("right", "H_\\text{value}")];
    case "recurrence":
      return [same("left", "f"), same("right", "u")];
    case "layer_norm":
    case "rms_norm":
      return [vectors()];
    case "scale":
    case "elementwise":
      return [same("left", /relu|elu|silu/.test(answer.formula) ? "H" : open.letter)];
    case "sinusoid":
      return [same("left", "\\theta")];
    default:
      return [];
  }
}

/** Scrolls a list until this part of it is seen, without moving the page. */
function reveal(part, list) {
  if (!part) return;
  const inner = part.getBoundingClientRect(), outer = list.getBoundingClientRect();
  list.scrollTop += Math.min(0, inner.top - outer.top) + Math.max(0, inner.bottom - outer.bottom);
}

function walk(event) {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const all = [...event.currentTarget.querySelectorAll("button")], at = all.indexOf(document.activeElement);
  if (!move || at < 0) return;
  event.preventDefault();
  all[Math.min(Math.max(at + move, 0), all.length - 1)].focus();
}
