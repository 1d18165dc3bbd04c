// Controls of the what-if bench: weights of a row, scales of heads, switches of modules, a padded batch.

import { dropEdits, editsOf, factorOf, isOff, keepOnly, setEdit, setHead, toggleModule } from "../edits.js";
import { h, number, visible } from "../dom.js";
import { colon, t } from "../i18n.js";
import { chosen, editedSites } from "../models.js";
import { moduleTitle } from "../names.js";
import { button, counted, select, toggle } from "./controls.js";
import "./heat-map.js";
import { current, headsOf, update } from "../store.js";
import { cellKey, siteName } from "../tensors.js";

const KINDS = ["self", "cross", "feed_forward"];

/** The row of one head: a slider for each weight. */
export function weightEditor(edited, state) {
  const site = state.edit_site, [layers, heads] = edited.shape(site);
  if (!layers) return h("section", { class: "card", hidden: true });
  const at = (n, count) => Math.min(Math.max(0, n), count - 1);
  const layer = at(state.edit_layer, layers), head = at(state.edit_head, heads);
  const name = siteName(site, edited.layers(site)[layer]), values = edited.head(site, layer, head);
  const matrix = edited.matrix(site, values), row = at(state.edit_row, matrix.rows);
  const factor = factorOf(state, name, head);
  const map = h("heat-map", { class: factor ? "" : "switched-off", data: { ...matrix, sums: true, largest: 40,
    label: t("ablation.rowMap", { module: moduleTitle(name), head }), saying: (said, place) => t(cellKey(site,
      place.row, matrix.first), said) },
    onpick: ({ detail }) => update({ edit_row: detail.row }, { quiet: true }) });
  const scales = headsOf(state.heads)[name] ?? {};
  const alone = heads > 1 && Array.from({ length: heads }, (_, n) => n).every((n) => n === head
    || scales[n] === 0) && factor > 0;
  return h("section", { class: "card", id: "weights" }, h("h3", {}, t("ablation.weights")),
    h("p", { class: "note" }, t("ablation.weights.explain")),
    h("div", { class: "row controls" },
      select("edit_site", t("attention"), site, editedSites().map((each) => [each, t(`site.${each}`)])),
      select("edit_layer", t("layer"), layer, counted(layers, "layer", edited.layers(site))),
      select("edit_head", t("head"), head, counted(heads, "head")),
      select("edit_row", t("ablation.row"), row, matrix.rowLabels.map((each, n) => [n, `${n}: ${visible(each)}`])),
      button(t(factor === 0 ? "ablation.on" : "ablation.off"), () => flip(name, head), { id: "flip-head",
        disabled: isOff(state, name) }),
      heads > 1 ? button(t(alone ? "ablation.keepAll" : "ablation.keepOnly"), () => keepOnly(name, alone ? null : head, heads), { id: "keep-only" }) : null),
    h("div", { class: "map-and-list" }, h("div", {}, factor === 1 ? null : h("p", { class: "notice off-label" },
      factor ? t("ablation.factor", { factor }) : t("ablation.isOff")), map),
    sliders({ name, head, row, factor, matrix }, state)));
}

function sliders({ name, head, row, factor, matrix }, state) {
  const { values, columns, columnLabels, rowLabels } = matrix;
  const isOfRow = (edit) => edit.kind === "weight" && edit.module === name && edit.head === head && edit.row === row;
  const mine = editsOf(state).filter(isOfRow);
  const move = (column, value, isDropped = undefined) => setEdit({ kind: "weight", module: name, head, row, column,
    value: Math.round(value * 100) / 100 }, isDropped);
  return h("div", {}, h("h4", {}, t("ablation.rowOf", { token: visible(rowLabels[row]) })),
    h("ul", { class: "weights" }, columnLabels.map((label, column) => {
      const value = factor ? values[row * columns + column] / factor : 0;
      const isSet = mine.some((edit) => edit.column === column);
      return h("li", { class: isSet ? "set" : "" }, h("label", { for: `weight-${column}` }, visible(label)),
        h("input", { id: `weight-${column}`, type: "range", min: 0, max: 1, step: 0.01, value: String(value),
          disabled: !factor, onchange: (event) => move(column, Number(event.target.value)),
          oninput: (event) => { event.target.nextSibling.textContent = number(Number(event.target.value), 2); } }),
        h("output", {}, number(value, 2)),
        button(t("ablation.allHere"), () => move(column, 1, isOfRow), { class: "link", id: `all-${column}`, disabled: !factor,
          "aria-label": `${t("ablation.allHere")}${colon()}${visible(label)}` }));
    })),
    button(t("ablation.restoreRow"), () => dropEdits(isOfRow), { id: "restore-row", disabled: !mine.length }));
}

/** Layers and sub-layers, each a switch. */
export function moduleSwitches(state) {
  const model = chosen(), only = model.config?.autoregression === "ssru" ? "ssru" : "";
  const rows = [...Array(model.encoder_layers).keys()].map((n) => ["encoder", n])
    .concat([...Array(model.decoder_layers).keys()].map((n) => ["decoder", n]));
  const cell = (module, label) => h("td", {}, h("button", { type: "button", id: `switch-${module}`, class: "switching",
    "aria-pressed": String(!isOff(state, module)), "aria-label": `${moduleTitle(module)}${colon()}${t(isOff(state, module) ? "off" : "on")}`,
    title: moduleTitle(module), disabled: isOff(state, module) && !editsOf(state).some((each) => each.kind === "off"
      && each.module === module), onclick: () => toggleModule(module) }, label));
  return h("section", { class: "card" }, h("h3", {}, t("ablation.layers")),
    h("p", { class: "note" }, t("ablation.layers.explain")),
    h("div", { class: "table-scroll" }, h("table", { class: "switches" }, h("thead", { class: "unseen" },
      h("tr", {}, h("td", {}), ["layer", ...KINDS].map((kind) => h("th", { scope: "col" }, t(`sub.${kind}`))))),
      h("tbody", {}, rows.map(([stack, n]) => h("tr", {},
        h("th", { scope: "row" }, t(`stack.${stack}`), ` ${n}`), cell(`${stack}.${n}`, t("sub.layer")),
        KINDS.filter((kind) => kind !== "cross" || (stack === "decoder" && model.encoder_layers))
          .map((kind) => cell(`${stack}.${n}.${kind}`, t(kind === "self" && stack === "decoder" && only
            ? "sub.recurrence" : `sub.${kind}`)))))))));
}

/** The longer sentence of a batch, and whether its padding is masked. */
export function paddingControls(state) {
  return h("div", { class: "row controls" }, h("label", { class: "field wide" }, h("span", {}, t("ablation.beside")),
    h("input", { id: "beside", type: "text", value: state.beside, placeholder: t("ablation.beside.example"),
      onchange: (event) => update({ beside: event.target.value.trim() }) })),
  button(t("ablation.double"), () => update({ beside: `${state.text} ${state.text}`.trim() }), { id: "double" }),
  toggle("padding_mask", t("ablation.padding_mask"), state.padding_mask));
}

export function flip(site, head) {
  setHead(site, head, (headsOf(current().heads)[site]?.[head] ?? 1) === 1 ? 0 : 1);
}

export const restore = (name, drop) => button("×", drop, { class: "link", "aria-label": `${t("ablation.restore")} ${name}` });

export function scaleOf({ site, head, scale: value }) {
  const name = `${moduleTitle(site)} · ${t("head.n", { n: head })}`;
  return [h("label", {}, h("span", {}, name), h("input", { id: `scale-${site}.${head}`, type: "range", min: 0, max: 1,
    step: 0.05, value: String(value), onchange: (event) => setHead(site, head, Number(event.target.value)),
    oninput: (event) => { event.target.nextSibling.textContent = `×${event.target.value}`; } }),
    h("output", {}, `×${value}`)), restore(name, () => setHead(site, head, 1))];
}
