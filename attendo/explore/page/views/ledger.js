// The books of one pass: every sub-layer with its shapes, sizes and time, and its formula with the numbers filled in.

import { ask } from "../api.js";
import { h, meter, number, percent, visible, whole } from "../dom.js";
import { language, t } from "../i18n.js";
import { choice, select } from "../parts/controls.js";
import { DECODER, ofLedger } from "../requests.js";
import { stacked, tableScene } from "../scene.js";
import { current, update } from "../store.js";
import { View } from "../view.js";

const PARTS = ["all", "encoder", "decoder", "output"];
const COLUMNS = ["name", "formula", "shapes", "norm_in", "norm_out", "share", "gain", "time"];

export class Ledger extends View {
  static name = "ledger";
  static asks = ["model", "checkpoint", "text", "target", "heads", "position", ...DECODER];
  static draws = ["part", "row"];

  load(state, signal) {
    return ask("/ledger", ofLedger(state), signal);
  }

  /** A position that the next sentence does not have is given up. */
  follow(changed) {
    if (["model", "text", "target"].some((name) => changed.has(name)) && current().position >= 0) update(
      { position: -1 }, { quiet: true });
    else super.follow(changed);
  }

  content(data, state) {
    this.rows = data.rows.filter((row) => state.part === "all" || row.part === state.part);
    const total = data.rows.reduce((sum, row) => sum + (row.microseconds ?? 0), 0);
    return [
      h("div", { class: "row controls" }, choice("part", t("ledger.part"), state.part,
        PARTS.map((part) => [part, t(`part.${part}`)])),
        select("position", t("ledger.position"), state.position, [[-1, t("ledger.every")], ...(data.predicted ?? [])
          .map((piece, n) => [n, `${n} · ${visible(piece)}`])]),
        h("span", { class: "note" }, t("ledger.total", { count: data.rows.length, time: whole(total) }))),
      h("section", { class: "card" }, h("div", { class: "table-scroll", tabindex: "0", role: "region",
        "aria-label": t("ledger.title") },
        h("table", { class: "ledger wide" }, h("caption", { class: "unseen" }, t("ledger.title")),
          h("thead", {}, h("tr", {}, COLUMNS
            .map((name) => h("th", { scope: "col", title: t(`ledger.${name}.explain`) }, t(`ledger.${name}`))))),
          h("tbody", { onkeydown: walk }, this.rows.flatMap((row, n) =>
            this.line(row, n, state.row === `${row.name} ${row.formula}`)))))),
    ];
  }

  line(row, n, open) {
    const first = n === 0 || this.rows[n - 1].part !== row.part;
    const key = `${row.name} ${row.formula}`;
    return [
      first ? h("tr", { class: "group" }, h("th", { colspan: COLUMNS.length, scope: "rowgroup" },
        t(`part.${row.part}`))) : null,
      h("tr", { class: open ? "open" : "", "data-row": row.name,
        onclick: (event) => { if (!event.target.closest("button")) update({ row: open ? "" : key }); } },
        h("th", { scope: "row" }, h("button", { type: "button", class: "link", id: `row-${n}`,
          "aria-expanded": String(open), onclick: () => update({ row: open ? "" : key }) }, row.name)),
        h("td", { class: "brief" }, h("small", {}, row.formula), row.text),
        h("td", {}, `${shape(row.shape_in)} → ${shape(row.shape_out)}`),
        h("td", { "data-number": "norm_in" }, number(row.norm_in, 2)),
        h("td", { "data-number": "norm_out" }, number(row.norm_out, 2)),
        h("td", {}, row.share === null ? "–" : meter(row.share)),
        h("td", {}, number(row.gain, 2)), h("td", {}, row.microseconds === null ? "–" : number(row.microseconds, 0))),
      open ? h("tr", { class: "detail" }, h("td", { colspan: COLUMNS.length },
        h("div", { class: "detail-body" }, this.detail(row)))) : null,
    ];
  }

  detail(row) {
    const steps = row.steps?.length ? row.steps : [row], several = steps.length > 1;
    return [
      several ? [h("p", { class: "maths" }, row.text), h("p", { class: "maths bound" }, filledIn(row))] : null,
      several ? h("p", {}, row.explain[language()] ?? row.explain.en) : null,
      h("ol", { class: "formulas" }, steps.map((step) => h("li", {}, this.formula(step)))),
    ];
  }

  formula(step) {
    const { values, explain, symbols } = step, names = Object.entries(symbols?.[language()] ?? {});
    return h("div", { class: "formula" },
      h("p", { class: "note" }, [step.name, step.formula].filter(Boolean).join(" · ")),
      h("p", { class: "maths" }, step.text), h("p", { class: "maths bound" }, filledIn(step)),
      h("p", {}, explain[language()] ?? explain.en),
      names.length ? h("p", { class: "note" }, names.map(([name, meaning]) => `${name}: ${meaning}`).join(" · "))
        : null,
      values ? h("figure", {}, h("figcaption", {}, t("ledger.values", { shape: shape(values.shape) }),
        values.cut ? ` · ${t("ledger.cut")}` : ""), numbersOf(values)) : null);
  }

  picture() {
    const rows = this.rows.map((row) => [row.name, row.text, `${shape(row.shape_in)} → ${shape(row.shape_out)}`,
      number(row.norm_in, 2), number(row.norm_out, 2), percent(row.share), number(row.gain, 2)]);
    return stacked([{ title: current().text, scene: tableScene([t("ledger.name"), t("ledger.formula"),
      ...["shapes", "norm_in", "norm_out", "share", "gain"].map((name) => t(`ledger.${name}`))], rows) }]);
  }
}

const shape = (sizes) => (Array.isArray(sizes) ? `[${sizes.join(", ")}]` : String(sizes ?? "–"));

/** The shapes behind the formula, where they follow it. */
const filledIn = ({ text, bound }) => (bound.startsWith(text) ? bound.slice(text.length).replace(/^\s*:\s*/, "")
  : bound);

function numbersOf({ numbers, cut }) {
  return h("p", { class: "numbers" }, numbers.flat(Infinity).slice(0, 16)
    .map((value) => h("span", {}, number(value, 3))), cut || numbers.length > 16 ? h("span", {}, "…") : null);
}

function walk(event) {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!move) return;
  const all = [...event.currentTarget.querySelectorAll("th button")], at = all.indexOf(document.activeElement);
  if (at < 0) return;
  event.preventDefault();
  all[Math.min(Math.max(at + move, 0), all.length - 1)].focus();
}
