// How a cell comes about, as elements: lines of formulas, sums with their terms, and the softmax of a row.

import { h, percent, visible } from "../dom.js";
import { t } from "../i18n.js";
import { maths } from "./mathml.js";

/** A map of a tensor. What a mask hides is NaN to a map. */
export function matrixOf(found, name, rowLabels, columnLabels) {
  const all = found.values(name), width = found.shape(name)[1] ?? 1;
  const rows = rowLabels.length, columns = columnLabels.length, values = new Float32Array(rows * columns);
  let limit = 1e-6;
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
    const value = all[r * width + c];
    values[r * columns + c] = Number.isFinite(value) ? value : NaN;
    if (Number.isFinite(value)) limit = Math.max(limit, Math.abs(value));
  }
  return { values, rows, columns, rowLabels, columnLabels, scale: "signs", limit };
}

/** A block of `explain`. */
export function blockOf({ tex, terms, softmax, own }, found) {
  const mark = own ? "own" : "";
  if (tex !== undefined) return h("p", { class: `maths line ${mark}` }, maths(tex));
  if (softmax) return softmaxTable(softmax, mark, found.answer.kind === "probabilities");
  const [a, b] = terms.symbols, label = `∑ ${plain(a)} · ${plain(b)}`;
  const largest = Math.max(...terms.rows.map((row) => Math.abs(toNumber(row[3]))), 1e-9);
  return h("div", { class: `table-scroll ${mark}`, tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: "terms" }, h("caption", {}, maths(`\\sum ${a} \\cdot ${b}`)),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, found.answer.kind === "mixture" ? t("calculator.token")
        : t("calculator.dimension")), [a, b, `${a} \\cdot ${b}`].map((symbol) => h("th", { scope: "col",
        class: "number" }, maths(symbol))), h("td", {}))),
      h("tbody", {}, terms.rows.map(([name, left, right, value]) => h("tr", {}, h("th", { scope: "row" },
        visible(name)), h("td", { class: "number" }, left), h("td", { class: "number" }, right),
        h("td", { class: "number product" }, value), h("td", {}, h("span", { class: "zero" }, h("i", {
          class: toNumber(value) < 0 ? "less" : "more",
          style: { width: `${(Math.abs(toNumber(value)) / largest) * 50}%` } }))))),
      terms.rest ? h("tr", { class: "rest" }, h("th", { scope: "row", colspan: 3 }, t("calculator.rest",
        { count: terms.rest[0] })), h("td", { class: "number product" }, terms.rest[1]), h("td", {})) : null,
      terms.added === null ? null : h("tr", { class: "bias" }, h("th", { scope: "row", colspan: 3 }, maths("b")),
        h("td", { class: "number product" }, terms.added), h("td", {}))),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: 3 }, t("calculator.sum")),
        h("td", { class: "number total" }, terms.total), h("td", {})))));
}

function softmaxTable({ largest, rows, rest, total }, mark, vocabulary) {
  const heads = [vocabulary ? "z" : "S", `e^{${vocabulary ? "z" : "S"} - ${largest.replace("−", "(-")}${
    largest.startsWith("−") ? ")" : ""}}`, vocabulary ? "P" : "A"];
  return h("div", { class: `table-scroll ${mark}`, tabindex: "0", role: "region", "aria-label": "softmax" },
    h("table", { class: "terms softmax" }, h("caption", {}, t("calculator.softmax")),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("calculator.token")), heads.map((symbol) =>
        h("th", { scope: "col", class: "number" }, maths(symbol))), h("td", {}))),
      h("tbody", {}, rows.map(({ label, own, cells }) => h("tr", { class: own ? "chosen" : "" },
        h("th", { scope: "row" }, visible(label)), cells.map((cell, n) => h("td", { class: `number ${n === 2
          ? "product" : ""}` }, cell)), h("td", {}, h("span", { class: "track" }, h("span", { class: "fill",
          style: { width: percent(toNumber(cells[2])).replace(/[<\s]/g, "") } }))))),
      rest ? h("tr", { class: "rest" }, h("th", { scope: "row", colspan: 2 }, t("calculator.rest",
        { count: rest[0] })), h("td", { class: "number" }, rest[1]), h("td", { class: "number product" }, rest[2]),
      h("td", {})) : null),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: 2 }, t("calculator.sum")),
        h("td", { class: "number" }, total[0]), h("td", { class: "number total" }, total[1]), h("td", {})))));
}


/** A symbol without TeX. */
export const plain = (symbol) => symbol.replace(/\\text\{(\w+)\}/g, "$1").replace("\\", "");

const toNumber = (text) => Number(text.replace("−", "-"));
