// Two checkpoints, two decoders or two sources side by side, and the difference of their maps.

import { ask } from "../api.js";
import { h, number, signed } from "../dom.js";
import { t } from "../i18n.js";
import { chosen, sites } from "../models.js";
import { choice, counted, select, toggle } from "../parts/controls.js";
import "../parts/heat-map.js";
import { ANSWER, ofTrace } from "../requests.js";
import { stacked } from "../scene.js";
import { current, update } from "../store.js";
import { cellKey, hasRollout, traceOf } from "../tensors.js";
import { View } from "../view.js";

export class Compare extends View {
  static name = "compare";
  static asks = [...ANSWER, "versus", "other", "same"];
  static draws = ["site", "show", "layer", "head"];
  static holds = false;

  async load(state, signal) {
    const left = await traceOf(await ask("/trace", ofTrace(state), signal));
    const own = await traceOf(await ask("/trace", ofTrace(otherSide(state)), signal));
    const forced = state.same && state.versus !== "decoders";
    const right = forced ? await traceOf(await ask("/trace",
      ofTrace({ ...otherSide(state), target: left.answer.text }), signal)) : own;
    return { left, right, own };
  }

  fixed(state) {
    return [h("div", { class: "row controls" },
      choice("versus", t("compare.versus"), state.versus, ["checkpoints", "decoders", "sources"]
        .map((each) => [each, t(`compare.${each}`)]), (versus) => update({ versus, other: "" })),
      this.otherChoice(state),
      state.versus === "decoders" ? null : toggle("same", t("compare.same"), state.same))];
  }

  otherChoice(state) {
    const value = otherValue(state), label = t("compare.other");
    if (state.versus === "checkpoints") {
      const names = chosen().checkpoints ?? [];
      return names.length ? select("other", label, value, [...names.map((each) => [each, each]),
        ["final", t("page.final")]]) : h("p", { class: "note" }, t("compare.none"));
    }
    if (state.versus === "decoders") return select("other", label, value, ["greedy", "beam", "sample"]
      .map((kind) => [kind, t(`decoder.${kind}`)]));
    return h("label", { class: "field wide" }, h("span", {}, label), h("input",
      { id: "other", type: "text", value, onchange: (event) => update({ other: event.target.value.trim() }) }));
  }

  content({ left, right, own }, state) {
    const site = state.site, [layers, heads] = left.shape(site);
    const show = state.show === "rollout" && !hasRollout(site) ? "mean" : state.show;
    const maps = [left, right].map((each) => each.matrix(site, each.together(site, { ...state, show })));
    const difference = differenceOf(...maps);
    this.parts = [
      { title: `A · ${nameOf(state, false)}`, data: maps[0], trace: left, own: left.answer },
      { title: `B · ${nameOf(state, true)}`, data: maps[1], trace: right, own: own.answer },
    ].map((part) => ({ ...part, map: h("heat-map", { data: { ...part.data, largest: 34, label: part.title,
      saying: (said, at) => t(cellKey(site, at.row, part.data.first), said) } }) }));
    this.difference = difference && h("heat-map", { data: { ...difference, largest: 40, scale: "signs",
      label: t("compare.difference") } });
    return [...this.fixed(state),
      h("div", { class: "row controls" },
        select("site", t("attention"), site, sites().map((each) => [each, t(`site.${each}`)])),
        select("show", t("alignment.show"), show, ["mean", "max", ...(hasRollout(site) ? ["rollout"] : []), "head"]
          .map((each) => [each, t(`show.${each}`)])),
        show === "rollout" ? null : select("layer", t("layer"), show === "head" ? Math.max(0, state.layer)
          : state.layer, show === "head" ? counted(layers, "layer", left.layers(site)) : [[-1, t("alignment.all")],
          ...counted(layers, "layer", left.layers(site))]),
        show === "head" ? select("head", t("head"), state.head, counted(heads, "head")) : null),
      h("div", { class: "pair three" }, this.parts.map((part) => sideOf(part)),
        h("section", { class: "card" }, h("h3", {}, t("compare.difference")),
        this.difference ? [h("p", { class: "note" }, t("compare.sign", { largest: number(difference.largest, 3) })),
          this.difference] : h("p", { class: "note" }, t("compare.unlike"))))];
  }

  picture() {
    const parts = this.parts.map(({ title, map }) => ({ title, scene: map.sceneFor(map.width || 480) }));
    return stacked(this.difference ? [...parts, { title: t("compare.difference"),
      scene: this.difference.sceneFor(this.difference.width || 480) }] : parts);
  }

  exported() {
    return this.parts.map(({ title, data, own }) => ({ title, answer: own.text, cut: own.cut, ...data,
      values: Array.from(data.values) }));
  }
}

function sideOf({ title, trace, own, map }) {
  return h("section", { class: "card" }, h("h3", {}, title), h("p", { class: "output" }, own.text,
    own.cut ? h("small", { class: "cut" }, ` ${t("translate.cut")}`) : null),
    trace.answer.text === own.text ? null : h("dl", { class: "facts" }, h("div", {},
      h("dt", {}, t("compare.forced")), h("dd", {}, trace.answer.text))),
    h("dl", { class: "facts" },
      h("div", {}, h("dt", {}, t("compare.log")), h("dd", { "data-number": "log" },
        number(trace.answer.log_probability, 4))),
      h("div", {}, h("dt", {}, t("compare.loss")), h("dd", {}, number(trace.answer.loss, 4)))),
    map);
}

function otherValue(state) {
  if (state.other) return state.other;
  if (state.versus === "checkpoints") return chosen()?.checkpoints?.[0] ?? "final";
  if (state.versus === "decoders") return state.kind === "greedy" ? "beam" : "greedy";
  return (chosen()?.samples ?? []).find((sample) => sample !== state.text) ?? state.text;
}

function otherSide(state) {
  const other = otherValue(state);
  if (state.versus === "checkpoints") return { ...state, checkpoint: other === "final" ? "" : other };
  if (state.versus === "decoders") return { ...state, kind: other, target: "" };
  return { ...state, text: other, target: "" };
}

function nameOf(state, isOther) {
  const side = isOther ? otherSide(state) : state;
  if (state.versus === "checkpoints") return side.checkpoint || t("page.final");
  return state.versus === "decoders" ? t(`decoder.${side.kind}`) : side.text;
}

/** B minus A, where they have the same number of rows and columns; names come from A. */
function differenceOf(left, right) {
  if (left.rows !== right.rows || left.columns !== right.columns) return null;
  const values = left.values.map((value, n) => right.values[n] - value);
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const limit = Math.max(largest, 0.01); // so that noise has no colour
  const saying = ({ row, column }, at) => t("compare.cell", { row, column,
    value: signed(values[at.row * left.columns + at.column], 4) });
  const both = (ours, theirs) => ours.map((label, n) => (label === theirs[n] ? label : `${label}/${theirs[n]}`));
  return { ...left, values, limit, largest, saying, rowLabels: both(left.rowLabels, right.rowLabels),
    columnLabels: both(left.columnLabels, right.columnLabels) };
}
