// What may be looked at: masks beside the scores before and after, and what the model would see without them.

import { ask } from "../api.js";
import { h, number, signed } from "../dom.js";
import { t } from "../i18n.js";
import { counted, select, toggle } from "../parts/controls.js";
import "../parts/heat-map.js";
import { chosen } from "../models.js";
import { DECODER, ofMask } from "../requests.js";
import { stacked } from "../scene.js";
import { View } from "../view.js";

export class Mask extends View {
  static name = "mask";
  static asks = ["model", "checkpoint", "text", "target", "mask_layer", "mask_head", ...DECODER];
  static draws = ["mask_off"];

  load(state, signal) {
    return ask("/mask", ofMask(state), signal);
  }

  fixed(state) {
    const model = chosen();
    return [h("div", { class: "row controls" },
      select("mask_layer", t("layer"), state.mask_layer, counted(model.decoder_layers, "layer")),
      select("mask_head", t("head"), state.mask_head, counted(model.heads, "head")),
      toggle("mask_off", t("mask.off"), state.mask_off))];
  }

  content(data, state) {
    const { rows, columns } = data.labels, off = state.mask_off;
    const allowed = data.causal.map((row) => row.map((seen, n) => (seen && data.padding[n] ? 1 : 0)));
    const most = Math.max(1, ...data.before.flat().map((each) => Math.abs(each ?? 0)));
    const make = (name, values, more = {}, explain = undefined) => this.card(name, { values: flat(values),
      rows: rows.length, columns: columns.length, rowLabels: rows, columnLabels: columns, largest: 40, ...more }, explain);
    this.cards = [
      make("causal", allowed, { wordless: true, saying: (said, at) => t(allowed[at.row][at.column] ? "mask.may"
        : "mask.mayNot", said) }),
      make("before", data.before, { scale: "signs", limit: most }),
      make("after", off ? data.before : data.after, { scale: "signs", limit: most },
        off ? "mask.after.off" : undefined),
      make("weights", off ? data.weights_unmasked : data.weights, { sums: true }),
    ];
    return [...this.fixed(state), this.losses(data, off), h("p", { class: "note" }, t("map.rows"), " ",
      this.padding(data)),
      h("div", { class: "pair" }, this.cards.map(({ card }) => card))];
  }

  card(name, data, explain = `mask.${name}.explain`) {
    const title = t(`mask.${name}`), map = h("heat-map", { data: { ...data, label: title } });
    return { title, map, card: h("section", { class: "card" }, h("h3", {}, title),
      h("p", { class: "note" }, t(explain)), map) };
  }

  losses(data, off) {
    const change = data.loss_unmasked - data.loss;
    return h("section", { class: "card figures", "aria-live": "polite" },
      h("div", { class: off ? "" : "now" }, h("span", {}, t("mask.loss")),
        h("strong", { "data-number": "loss" }, number(data.loss, 4))),
      h("div", { class: off ? "now" : "" }, h("span", {}, t("mask.lossOff")),
        h("strong", { "data-number": "loss_unmasked" }, number(data.loss_unmasked, 4))),
      h("div", {}, h("span", {}, t("mask.change")), h("strong", {}, signed(change, 4))),
      h("p", {}, t(change < 0 ? "mask.leak" : "mask.confused")));
  }

  padding(data) {
    const hidden = data.padding.filter((seen) => !seen).length;
    return hidden ? t("mask.padded", { count: hidden }) : t("mask.unpadded");
  }

  picture() {
    return stacked(this.cards.map(({ title, map }) => ({ title, scene: map.sceneFor(map.width || 480) })));
  }
}

const flat = (rows) => Float32Array.from(rows.flat(), (value) => (value === null ? NaN : Number(value)));
