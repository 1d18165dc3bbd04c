// What may be looked at: the mask of every attention, whose cells can be opened and closed, and what that changes.

import { ask } from "../api.js";
import { h, number, signed } from "../dom.js";
import { CHANGES, dropEdits, editsOf, setEdit } from "../edits.js";
import { space, t } from "../i18n.js";
import { paddingControls } from "../parts/changes.js";
import { button, counted, select, toggle } from "../parts/controls.js";
import "../parts/heat-map.js";
import { chosen, continuesText, editedSites, rowsKey } from "../models.js";
import { DECODER, ofMask } from "../requests.js";
import { stacked } from "../scene.js";
import { current, update } from "../store.js";
import { View } from "../view.js";

const MASKS = { encoder_self: "encoder.self", decoder_self: "decoder.self", cross: "decoder.cross" };

export class Mask extends View {
  static name = "mask";
  static asks = ["model", "checkpoint", "text", "target", "mask_site", "mask_layer", "mask_head", ...CHANGES, ...DECODER];
  static draws = ["mask_off"];

  load(state, signal) {
    return ask("/mask", ofMask(state), signal);
  }

  fixed(state) {
    const model = chosen(), { mask_site: site } = state;
    const layers = site === "encoder_self" ? model.encoder_layers : model.decoder_layers;
    const cells = editsOf(state).filter((edit) => edit.kind === "mask");
    return [h("div", { class: "row controls" },
      select("mask_site", t("attention"), site, editedSites().map((each) => [each, t(`site.${each}`)])),
      select("mask_layer", t("layer"), state.mask_layer, counted(layers, "layer")),
      select("mask_head", t("head"), state.mask_head, counted(model.heads, "head")),
      toggle("mask_off", t(site === "decoder_self" ? "mask.off" : "mask.paddingOff"), state.mask_off),
      cells.length ? button(t("mask.restore", { count: cells.length }), () => dropEdits((edit) => edit.kind === "mask"),
        { id: "restore-cells" }) : null), ...(continuesText() ? [] : [paddingControls(state)])];
  }

  content(data, state) {
    const { rows, columns } = data.labels, off = state.mask_off;
    const usual = data.causal.map((row) => row.map((seen, n) => (off ? true : seen && data.padding[n])));
    const visible = off ? usual : data.visible, allowed = visible.map((row) => row.map(Number));
    const most = Math.max(1, ...data.before.flat().map((each) => Math.abs(each ?? 0)));
    const make = (name, values, more = {}, explain = undefined, onpick = null) => this.card(name,
      { values: flat(values), rows: rows.length, columns: columns.length, rowLabels: rows, columnLabels: columns,
        largest: 40, ...more }, explain, onpick);
    this.cards = [
      make("causal", allowed, { wordless: true, saying: (said, at) => t(allowed[at.row][at.column] ? "mask.may"
        : "mask.mayNot", said) }, off ? "mask.causal.off" : undefined, off ? null : ({ detail: { row, column } }) =>
        this.turn(row, column, !visible[row][column], usual[row][column])),
      make("before", data.before, { scale: "signs", limit: most }),
      make("after", off ? data.before : data.after, { scale: "signs", limit: most },
        off ? "mask.after.off" : undefined),
      make("weights", off ? data.weights_unmasked : data.weights, { sums: true }),
    ];
    return [...this.fixed(state), this.question(data, state), h("p", { class: "note" },
      t(rowsKey(state.mask_site)), space(), this.padding(data)),
      h("div", { class: "pair" }, this.cards.map(({ card }) => card))];
  }

  /** Opens or closes a cell for all layers and heads; as it was, it is no change any more. */
  turn(row, column, visible, usual) {
    const edit = { kind: "mask", module: MASKS[current().mask_site], head: null, row, column, visible };
    if (visible === usual) dropEdits((each) => each.kind === "mask" && each.module === edit.module
      && each.row === row && each.column === column);
    else setEdit(edit);
  }

  card(name, data, explain = `mask.${name}.explain`, onpick = null) {
    const title = t(`mask.${name}`), map = h("heat-map", { id: `map-${name}`, data: { ...data, label: title }, onpick });
    return { title, map, card: h("section", { class: "card" }, h("h3", {}, title),
      h("p", { class: "note" }, t(explain)), map) };
  }

  /** The question comes first: the loss without the mask is told once the mask is off. */
  question(data, state) {
    const off = state.mask_off, cells = data.loss !== data.loss_usual, causal = state.mask_site === "decoder_self";
    const hasPadding = data.padding.some((seen) => !seen);
    const figure = (name, value, now) => h("div", { class: now ? "now" : "" }, h("span", {}, t(`mask.${name}`)),
      h("strong", { "data-number": name }, value));
    if (!off && !cells) {
      return h("section", { class: "card figures" }, figure("loss", number(data.loss, 4), true),
        h("p", {}, t(causal ? "mask.question" : hasPadding ? "mask.question.padding" : "mask.question.none")),
        causal || hasPadding ? h("div", { class: "row" }, button(t("mask.look"), () => update({ mask_off: true }),
          { id: "look" })) : null);
    }
    const now = off ? data.loss_unmasked : data.loss, change = now - data.loss_usual;
    const told = !off ? "mask.cells" : !causal ? "mask.padding.told" : change < 0 ? "mask.leak" : "mask.confused";
    return h("section", { class: "card figures", "aria-live": "polite" },
      figure("loss", number(data.loss_usual, 4), false),
      figure(off ? "lossOff" : "lossCells", number(now, 4), true), figure("change", signed(change, 4), false),
      h("p", {}, t(told)));
  }

  padding(data) {
    const hidden = data.padding.filter((seen) => !seen).length;
    const pads = data.labels.columns.filter((piece) => piece === "<pad>").length;
    if (hidden) return t("mask.padded", { count: hidden });
    return pads ? t("mask.seen", { count: pads }) : t("mask.unpadded");
  }

  picture() {
    return stacked(this.cards.map(({ title, map }) => ({ title, scene: map.sceneFor(map.width || 480) })));
  }
}

const flat = (rows) => Float32Array.from(rows.flat(), (value) => (value === null ? NaN : Number(value)));
