// Where the decoder looks at one step: a weight for each source token, and one for each token it has read.

import { h, percent, track, visible } from "../dom.js";
import { t } from "../i18n.js";
import { isDecoderOnly } from "../models.js";
import { current } from "../store.js";
import { counted, select } from "./controls.js";

/** `data`: the trace of the answer. `show(step)` draws that step. */
export class StepAttention extends HTMLElement {
  connectedCallback() {
    this.controls = h("div", { class: "row controls" });
    this.sides = h("div", { class: "pair" });
    this.replaceChildren(this.controls, this.sides);
    if (this.at !== undefined) this.show(this.at);
  }

  show(at) {
    this.at = at;
    if (!this.isConnected) return;
    this.drawControls();
    const own = this.side("decoder_self", t("steps.toPrefix"));
    this.sides.replaceChildren(...(isDecoderOnly() ? [own] : [this.side("cross", t("steps.toSource")), own]));
  }

  drawControls() {
    const state = current(), show = state.show === "rollout" ? "mean" : state.show,
      site = isDecoderOnly() ? "decoder_self" : "cross",
      [layers, heads] = this.data.shape(site), numbers = this.data.layers(site);
    const focus = this.controls.contains(document.activeElement) ? document.activeElement.id : "";
    this.controls.replaceChildren(...[
      select("show", t("alignment.show"), show, ["mean", "max", "head"].map((each) => [each, t(`show.${each}`)])),
      select("layer", t("layer"), show === "head" ? Math.max(0, state.layer) : state.layer, show === "head"
        ? counted(layers, "layer", numbers) : [[-1, t("alignment.all")], ...counted(layers, "layer", numbers)]),
      show === "head" ? select("head", t("head"), state.head, counted(heads, "head")) : null].filter(Boolean));
    if (focus) document.getElementById(focus)?.focus();
  }

  side(site, title) {
    const [layers, , , width] = this.data.shape(site);
    if (!layers || !width) return h("section", {}, h("h4", {}, title), h("p", { class: "note" }, t("steps.noSelf")));
    const state = current(), show = state.show === "rollout" ? "mean" : state.show;
    const values = this.data.together(site, { ...state, show }), { columns } = this.data.sides(site);
    const row = site === "cross" ? this.at : this.data.answer.first + this.at;
    const count = site === "cross" ? width : Math.min(row + 1, width);
    const weights = Array.from({ length: count }, (_, n) => values[row * width + n]);
    const most = Math.max(...weights);
    return h("section", {}, h("h4", {}, title), h("ol", { class: "weights", "data-site": site },
      weights.map((weight, n) => h("li", { class: weight === most ? "most" : "", "data-weight": weight },
        h("span", { class: "name" }, visible(columns.pieces[n])), track(weight), h("span", { class: "number" },
          percent(weight))))));
  }
}

customElements.define("step-attention", StepAttention);
