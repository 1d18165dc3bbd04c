// What a person may do when a text is too long for its maps: nothing is cut without being asked.

import { h } from "../dom.js";
import { language } from "../i18n.js";
import { chosen } from "../models.js";
import { update } from "../store.js";
import { counted } from "./controls.js";

/** Buttons for the choices that came with an error: each has the text that it would send, or a list of texts. */
export function choicesOf({ code, choices = [], choices_zh: chinese = [], texts = [] }) {
  if (code === "block_too_large") return layerByLayer();
  return choices.map((choice, n) => {
    const label = (language() === "zh" && chinese[n]) || choice, text = texts[n];
    if (Array.isArray(text)) return listed(label, text);
    return typeof text === "string" ? h("button", { type: "button", onclick: () => take(text) }, label) : null;
  });
}

/** Maps of one layer always fit. */
function layerByLayer() {
  const { encoder_layers: encoder, decoder_layers: decoder } = chosen();
  return counted(Math.min(encoder, decoder), "layer").map(([n, label]) =>
    h("button", { type: "button", onclick: () => update({ layers: String(n) }) }, label));
}

function listed(label, texts) {
  return h("details", { class: "sentences" }, h("summary", {}, label),
    h("ol", {}, texts.map((text) => h("li", {}, h("button", { type: "button", class: "link",
      onclick: () => take(text) }, text)))));
}

const take = (text) => update({ text, target: "", prefix: "", forced: "", step: 0 });
