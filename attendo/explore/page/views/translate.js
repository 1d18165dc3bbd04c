// The bar above all views: text in, decoder, text out as it comes, and the other answers.

import { stream, wasCancelled } from "../api.js";
import { h, number, percent, signed, visible } from "../dom.js";
import { CHANGES } from "../edits.js";
import { space, t } from "../i18n.js";
import { chosen, continuesText, isParallel } from "../models.js";
import { button, choice, numeric } from "../parts/controls.js";
import { faultPanel } from "../parts/fault-panel.js";
import { ANSWER, decides, ofStream } from "../requests.js";
import { current, subscribe, update } from "../store.js";
import { complaint } from "../view.js";

const FIELDS = {
  greedy: {},
  beam: { beam: { min: 1, max: 12 }, n_best: { min: 1, max: 12 }, length_penalty: { min: 0, max: 5, step: 0.1 } },
  sample: { temperature: { min: 0.05, max: 5, step: 0.05 }, top_k: { min: 0, max: 1000 },
    top_p: { min: 0.05, max: 1, step: 0.05 }, seed: { min: 0, max: 1e9 } },
};
const NARROW = matchMedia("(max-width: 760px)");
const UNSURE = 0.7; // nats a token: a mean probability below 50 %, unless the model is that unsure on validation data
const ASKS = ANSWER.filter((name) => !["target", "layers"].includes(name));

class TranslateBar extends HTMLElement {
  connectedCallback() {
    this.subscription = subscribe((changed) => this.follow(changed));
    this.folding = () => this.draw(this.source.value);
    NARROW.addEventListener("change", this.folding);
    this.draw();
    this.translate();
  }

  disconnectedCallback() {
    this.subscription();
    NARROW.removeEventListener("change", this.folding);
    this.controller?.abort();
  }

  follow(changed) {
    if (["lang", "kind", "target", ...CHANGES, "layers", "text", "model"].some((name) => changed.has(name))) this.draw(
      changed.has("text") ? null : this.source.value);
    this.fill(changed);
    if (ASKS.some((name) => changed.has(name) && decides(name, current()))) this.translate({ again: !changed.has("checkpoint") });
    else if (changed.has("lang") || changed.has("target")) this.drawAnswer();
  }

  /** Numbers that were set elsewhere. */
  fill(changed) {
    for (const name of Object.keys(FIELDS[current().kind] ?? {})) {
      if (changed.has(name)) this.querySelector(`#${name}`).value = String(current()[name]);
    }
  }

  /** What was typed and not yet sent stays. */
  draw(typed = null) {
    const state = current(), focus = this.contains(document.activeElement) ? document.activeElement.id : "";
    this.output = h("p", { class: "output", "aria-live": "polite" });
    this.below = h("div", { class: "below" });
    this.source = h("textarea", { id: "source", rows: 2, placeholder: t("translate.placeholder"),
      value: typed ?? state.text, onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event);
    } });
    this.go = h("button", { id: "translate", class: "primary", type: "submit" }, t(continuesText() ? "translate.continue" : "translate.go"));
    this.stop = button(t("translate.stop"), () => this.controller?.abort(), { hidden: true });
    this.replaceChildren(h("form", { class: "translate", onsubmit: (event) => this.submit(event),
      "aria-label": t("translate.title") },
      h("div", { class: "side" }, h("label", { for: "source" },
        t(continuesText() ? "translate.prompt" : "translate.source")), this.source, this.samples()),
      h("div", { class: "side" }, h("div", { class: "label" }, t("translate.output")), this.output, this.below),
      h("div", { class: "row controls" }, this.go, this.stop, this.settings([
        isParallel() ? null : choice("kind", t("translate.decoder"), state.kind, ["greedy", "beam", "sample"]
          .map((kind) => [kind, t(`decoder.${kind}`)])),
        isParallel() ? null : Object.entries(FIELDS[state.kind] ?? {}).map(([name, limits]) => numeric(name,
          t(`decoder.${name}`), state[name], limits)),
        numeric("max_length", t("decoder.max_length"), state.max_length, { min: 0, max: 512 }),
        chosen()?.config?.kind === "masked" ? null : this.forcedTarget(state)]),
        this.changedHeads(state), this.fewerLayers(state))));
    if (this.answer) this.drawAnswer();
    if (focus) document.getElementById(focus)?.focus();
  }

  /** On a narrow screen these would fill it: they are folded. */
  settings(fields) {
    return NARROW.matches ? h("details", { class: "settings", open: this.unfolded,
      ontoggle: (event) => { this.unfolded = event.target.open; } },
      h("summary", { id: "settings" }, t("translate.settings")), h("div", { class: "row" }, fields)) : fields;
  }

  samples() {
    const samples = chosen()?.samples ?? [];
    return samples.length < 2 ? null : h("div", { class: "samples" }, samples.slice(0, 4).map((sample, n) =>
      button(sample, () => this.take(sample), { class: "link", id: `sample-${n}` })));
  }

  forcedTarget(state) {
    const field = h("input", { id: "target", type: "text", value: state.target, placeholder: t("translate.own"),
      onchange: (event) => update({ target: event.target.value.trim() }) });
    return h("label", { class: "field wide" }, h("span", {}, t("translate.target")), field);
  }

  changedHeads(state) {
    const [count, edits] = [state.heads, state.edits].map((text) => text.split(",").filter(Boolean).length);
    const told = [count ? t("translate.heads", { count }) : "", edits ? t("translate.edits", { count: edits }) : "",
      state.beside ? t("translate.padded") : ""].filter(Boolean);
    return told.length ? h("p", { class: "notice" }, told.join(space()), " ",
      button(t("reset"), () => update({ heads: "", edits: "", beside: "" }), { class: "link" })) : null;
  }

  fewerLayers({ layers }) {
    return layers ? h("p", { class: "notice" }, t("translate.layers", { layers }), " ",
      button(t("translate.all"), () => update({ layers: "" }), { class: "link" })) : null;
  }

  submit(event) {
    event.preventDefault();
    const text = this.source.value;
    if (text === current().text && !this.busy) this.translate();
    else this.take(text);
  }

  take(text) {
    this.source.value = text;
    update({ text, target: "", prefix: "", forced: "", step: 0 });
  }

  async translate({ again = true } = {}) {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    this.answer = null;
    this.output.replaceChildren();
    this.below.replaceChildren();
    if (!current().text.trim()) return;
    this.working(true);
    let text = "";
    try {
      for await (const { name, data } of stream("/answer", ofStream(current()), signal, { again })) {
        if (name === "text") this.output.textContent = text = data.whole ?? data.text;
        if (name === "done") this.answer = data;
      }
      this.drawAnswer();
    } catch (error) {
      if (this.controller.signal !== signal) return;
      if (wasCancelled(error)) this.below.replaceChildren(h("p", { class: "note" }, t("translate.stopped")));
      else this.below.replaceChildren(complaint(error, () => this.translate()));
    } finally {
      if (this.controller.signal === signal) this.working(false);
    }
  }

  working(busy) {
    this.busy = busy;
    this.stop.hidden = !busy;
    this.classList.toggle("working", busy);
  }

  drawAnswer() {
    if (!this.answer) return;
    const { hypotheses, alternatives = [], unknown = [] } = this.answer, [best] = hypotheses;
    this.output.replaceChildren(...(best.tokens?.length ? tokensOf(best) : [best.text]));
    this.below.replaceChildren(
      h("p", { class: "note" }, t("translate.score", { log: number(best.log_probability), score: number(best.score),
        count: best.pieces.length }), best.cut ? ` · ${t("translate.cut")}` : ""),
      ...outside(best, unknown), ...faultPanel(best, !continuesText()),
      ...this.others(hypotheses, alternatives.filter((text) => !hypotheses.some((each) => each.text === text))));
  }

  others(hypotheses, alternatives) {
    const rows = [...hypotheses.slice(1).map((each) => [each.text, number(each.score)]), ...alternatives
      .map((text) => [text, ""])];
    if (!rows.length) return [];
    const { target } = current();
    return [h("details", { class: "others", open: this.opened, ontoggle: (event) => { this.opened = event.target.open;
      } },
      h("summary", {}, t("translate.others", { count: rows.length })),
      h("ol", {}, rows.map(([text, score], n) => h("li", {}, button(text, () => update({ target: text }),
        { class: "link", id: `answer-${n}`, title: t("translate.look"),
          "aria-pressed": target === text ? "true" : "false" }), " ",
        h("small", {}, score)))))];
  }
}

/** One line if the sentence is unlike what the model learned: unknown words, unlikely tokens, or a great length. */
function outside({ log_probability: log, pieces }, unknown) {
  const { scores, longest_sample: longest } = chosen() ?? {}, loss = -log / Math.max(1, pieces.length);
  const isTrained = !current().checkpoint; // an early checkpoint is unsure of every sentence
  const reasons = [
    unknown.length ? t("translate.unknown", { words: [...new Set(unknown)].map(visible).join(" ") }) : "",
    current().kind !== "sample" && isTrained && !isParallel() && loss > Math.max(UNSURE, 1.2 * (scores?.valid_loss ?? 0))
      ? t("translate.unsure", { share: percent(Math.exp(-loss)) }) : "",
    longest && current().text.length > 1.5 * longest ? t("translate.long", { count: longest }) : "",
  ].filter(Boolean);
  return reasons.length ? [h("p", { class: "warning", role: "status" }, t("translate.outside"), space(),
    reasons.map((reason) => h("span", {}, reason)))] : [];
}

/** Each token is as faint as the model was unsure of it. */
function tokensOf(best) {
  return [h("span", { class: "whole" }, best.text), h("span", { class: "pieces" },
    best.tokens.map(({ piece, log_probability: log }) =>
    h("span", { class: "piece", title: `log p = ${signed(log)}`, style: { "--sure": String(Math.exp(log)) } },
      visible(piece))))];
}

customElements.define("translate-bar", TranslateBar);
