// An open box: its operations as small maps, and how one cell of the chosen operation comes about.

import { ask, leftOut, savedViews, wasCancelled } from "../api.js";
import { pixels } from "../colour.js";
import { h, number, visible } from "../dom.js";
import { language, t } from "../i18n.js";
import { operationTitle, stepTitle } from "../names.js";
import { chosen } from "../models.js";
import { ofCalculation } from "../requests.js";
import { current, update } from "../store.js";
import { complaint } from "../view.js";
import { Calculation, explain } from "./calculation.js";
import { blockOf, matrixOf } from "./cell-story.js";
import { select } from "./controls.js";
import "./heat-map.js";
import { maths } from "./mathml.js";

const ROWS = 32; // rows of one answer
// Tensors that come with the weights of an attention: the others need no answer of their own.
const WITH_WEIGHTS = { turned_queries: "left", queries: "left", turned_keys: "right", keys: "right",
  products: "products", bias: "bias", scores: "scores", masked: "masked", weights: "result" };
const EXPLAINED = ["products", "scores", "masked", "weights"];

/** `data`: {network, box}. */
export class ModulePanel extends HTMLElement {
  connectedCallback() {
    this.chosen = this.mainOperation();
    this.refresh();
  }

  disconnectedCallback() {
    this.controller?.abort();
  }

  mainOperation() {
    const { operations, part } = this.data.box, end = { attention: "weights", feed_forward: "bent" }[part];
    return operations.find((name) => end && name.endsWith(`.${end}`)) ?? operations.at(-1);
  }

  async refresh() {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    this.setAttribute("aria-busy", "true");
    if (!this.childElementCount) this.replaceChildren(h("p", { class: "waiting" }, t("waiting")));
    try {
      this.answers = await answersOf(this.data, current(), signal);
      this.found = await this.calculationOf(this.chosen, signal);
      if (!signal.aborted) this.draw();
    } catch (error) {
      if (wasCancelled(error) || signal.aborted) return;
      this.replaceChildren(this.problem(error, () => this.refresh()));
    } finally {
      if (!signal.aborted) this.removeAttribute("aria-busy");
    }
  }

  /** The operation with its operands: those of an attention up to its weights are all in one answer. */
  async calculationOf(name, signal) {
    const end = endOf(name), weights = this.answers.get(siteOf(name) + ".weights");
    if (weights && EXPLAINED.includes(end)) return Calculation.of(derived(weights, name, end, this.data.network));
    if (this.answers.has(name)) return Calculation.of(this.answers.get(name));
    return Calculation.of(await ask("/calculation", requestOf(this.data, current(), name), signal));
  }

  draw() {
    const { box, network } = this.data, state = current(), focus = document.activeElement?.id;
    const isAttention = box.part === "attention";
    this.replaceChildren(h("div", { class: "row panel-head" }, isAttention ? select("panel-head", t("head"), state.head,
      Array.from({ length: network.answer.heads }, (_, n) => [n, t("head.n", { n })]), (head) => update({ head, cell: "" },
        { quiet: true })) : null,
      savedViews && !savedViews.includes("calculator") ? null : h("button", { type: "button", class: "link end", id: "to-calculator", onclick: () => update({ view: "calculator",
        operation: this.chosen, cell: "" }) }, t("home.calculator"))),
    h("ol", { class: "chain", "aria-label": t("calculator.operations"), onkeydown: walk }, box.operations.map((name) =>
      this.link(name))), this.detail());
    if (focus && this.querySelector(`#${CSS.escape(focus)}`)) document.getElementById(focus).focus();
  }

  link(name) {
    const thumb = this.thumb(name), { shape } = this.data.network.formulas.get(name), { formulas } = this.data.network
      .answer, entry = this.data.network.formulas.get(name);
    return h("li", {}, h("button", { type: "button", class: "link-box", id: `chain-${name}`,
      "aria-current": name === this.chosen ? "true" : null, "aria-label": stepTitle(name),
      title: formulas[entry.formula].text.replaceAll("{x}", entry.letter), onclick: () => this.choose(name) },
    thumb ?? h("span", { class: "thumb empty", "aria-hidden": "true" }, "…"), h("span", {}, stepTitle(name)),
    h("small", {}, `[${shape.join(", ")}]`)));
  }

  thumb(name) {
    const end = endOf(name), weights = this.answers.get(`${siteOf(name)}.weights`);
    const [answer, tensor] = weights && end in WITH_WEIGHTS ? [weights, WITH_WEIGHTS[end]] : end === "values"
      ? [this.answers.get(`${siteOf(name)}.mixed`), "right"] : [this.answers.get(name), "result"];
    if (!answer || !(tensor in answer.tensors)) return null;
    const found = Calculation.of(answer), [rows, columns = 1] = found.shape(tensor), values = found.values(tensor);
    const canvas = h("canvas", { class: "thumb", "aria-hidden": "true" });
    const shown = Float32Array.from(values, (each) => (Number.isFinite(each) ? each : NaN));
    const limit = shown.reduce((most, each) => Math.max(most, Math.abs(each) || 0), 1e-6);
    const isShare = ["weights", "probabilities"].includes(end);
    canvas.width = columns;
    canvas.height = rows;
    canvas.getContext("2d").putImageData(new ImageData(pixels(shown, isShare ? "weights" : "signs", isShare ? 1 : limit),
      columns, rows), 0, 0);
    return canvas;
  }

  async choose(name) {
    this.chosen = name;
    try {
      this.found = await this.calculationOf(name, this.controller.signal);
      if (this.chosen === name) this.draw();
    } catch (error) {
      if (wasCancelled(error)) return;
      this.querySelector(".panel-detail").replaceChildren(this.problem(error, () => this.choose(name)));
    }
  }

  /** A file has a sentence on what it leaves out, where asking again would not help. */
  problem(error, retry) {
    if (error.code !== "not_saved" || !leftOut) return complaint(error, retry);
    const { box } = this.data, parts = leftOut.parts[chosen().name] ?? [], { limit } = leftOut;
    const layers = (stack) => parts.filter((each) => each.startsWith(stack)).map((each) => each.slice(stack.length + 1))
      .join(t("home.left.comma"));
    const missing = ["encoder", "decoder"].filter(layers).map((stack) => t(`home.left.${stack}`, { layers: layers(stack) }))
      .join(t("home.left.and"));
    const isRow = rowOf(this.data, current(), this.chosen) >= ROWS && parts.includes("rows");
    return h("p", { class: "note left-out" }, parts.includes(`${box.stack}.${box.layer}`) ? t("home.left.box", { limit,
      missing }) : t(isRow ? "home.left.rows" : "home.left.heads", { limit, rows: ROWS }));
  }

  detail() {
    const { network } = this.data, { found, chosen } = this, entry = network.formulas.get(chosen);
    const formula = network.answer.formulas[entry.formula], { rows, columns } = found.answer;
    const isShare = ["weights", "probabilities"].includes(endOf(chosen)), isWhole = /\.(ids|buckets)$/.test(chosen);
    this.story = h("div", { class: "story" });
    this.map = h("heat-map", { id: "panel-map", data: { ...matrixOf(found, "result", found.labels(rows),
      found.labels(columns)), label: operationTitle(chosen), largest: 26, wordless: true,
    ...(isShare ? { scale: "weights", limit: 1 } : {}), ...(isWhole ? { write: (value) => String(Math.round(value)) } : {}),
    saying: (each) => t("calculator.cell", each) }, oncell: ({ detail }) => this.tell(detail?.column != null
      && detail.row !== null ? detail : null) });
    this.isWhole = isWhole;
    this.tell(null);
    return h("div", { class: "panel-detail" }, h("div", { class: "panel-formula" }, h("p", { class: "maths" }, maths(
      formula.tex.replaceAll("{x}", entry.letter), { block: true, label: formula.text.replaceAll("{x}", entry.letter) })),
    h("p", { class: "note" }, formula.explain[language()])), h("div", { class: "panel-map" }, this.map), this.story);
  }

  /** How the cell that is pointed at comes about; without one, the largest of the current row. */
  tell(pointed) {
    const { found } = this, { rows, columns } = found.answer, at = pointed ?? this.firstCell();
    const names = [found.labels(rows)[at.row], found.labels(columns)[at.column]], value = found.at("result", at.row,
      at.column);
    const written = this.isWhole ? String(Math.round(value)) : Number.isFinite(value) ? number(value, 4) : "−∞";
    this.story.replaceChildren(h("h4", {}, `${stepTitle(this.chosen)}[`, visible(names[0]) || "·", ", ",
      visible(names[1] ?? ""), "] = ", h("span", { class: "value" }, written)), ...explain(found, at.row, at.column)
      .map((block) => blockOf(block, found)));
  }

  firstCell() {
    const { found } = this, { rows } = found.answer, row = Math.min(Math.max(rowOf(this.data, current(), this.chosen) - rows.first,
      0), rows.count - 1);
    const values = Array.from(found.row("result", row), (each) => (Number.isFinite(each) ? each : -1e9));
    return { row, column: Math.max(0, values.indexOf(Math.max(...values))) };
  }
}

const endOf = (name) => name.slice(name.lastIndexOf(".") + 1);
const siteOf = (name) => name.slice(0, name.lastIndexOf("."));

/** The row that is looked at: the followed token, or the token of this step. */
function rowOf({ box, network }, state, name) {
  const place = network.followed(state), isPredicted = ["decoder", "output"].includes(siteOf(name));
  const lane = place?.stack === box.stack ? place.lane : box.stack === "decoder" ? network.lane(state) : 0;
  return isPredicted ? Math.max(0, lane - network.first) : lane;
}

/** The target as text where it is known to give the same pass: the server then need not search for it again. */
function requestOf(data, state, name) {
  const { network, box } = data, { target_text: target } = network.answer, first = Math.floor(rowOf(data, state,
    name) / ROWS) * ROWS;
  const { shape } = network.formulas.get(name);
  return ofCalculation({ ...state, head: shape.length > 2 ? state.head : 0, target: state.target || target || "", first_row: name.startsWith(box.stack === "encoder"
    ? "source" : "target") || name.startsWith(box.stack) || name.startsWith("output") ? first : 0, first_column: 0 },
  network.formulas.get(name));
}

/** What an open box needs at first: for an attention, three answers hold all of its small maps. */
export async function answersOf(data, state, signal) {
  const { box } = data, wanted = box.part === "attention" ? box.operations.filter((name) => ["weights", "mixed",
    "output"].includes(endOf(name))) : box.operations;
  const answers = await Promise.all(wanted.map((name) => ask("/calculation", requestOf(data, state, name), signal)));
  return new Map(wanted.map((name, n) => [name, answers[n]]));
}

/** The answer of an operation on the way to the weights, made from that of the weights. */
const kept = new WeakMap();
function derived(answer, name, end, network) {
  if (end === "weights") return answer;
  if (!kept.has(answer)) kept.set(answer, {});
  return (kept.get(answer)[end] ??= { ...answer, operation: name, formula: network.formulas.get(name).formula,
    tensors: { ...answer.tensors, result: answer.tensors[end] } });
}

function walk(event) {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key], all = [...event.currentTarget.querySelectorAll("button")];
  const at = all.indexOf(document.activeElement);
  if (!move || at < 0 || !all[at + move]) return;
  event.preventDefault();
  all[at + move].focus();
}

customElements.define("module-panel", ModulePanel);
