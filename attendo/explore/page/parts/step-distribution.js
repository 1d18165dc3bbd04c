// The distribution of one token, which temperature, top k and top p reshape at once, and what would be sampled from it.

import { ask, wasCancelled } from "../api.js";
import { h, number, percent, track, visible } from "../dom.js";
import { t } from "../i18n.js";
import { chosen } from "../models.js";
import { ofDistribution, vocabularyPath } from "../requests.js";
import { draw, logProbabilities, shape } from "../sampling.js";
import { current, update } from "../store.js";
import { button, numeric, toggle } from "./controls.js";

const LOWEST = 1e-6; // of the logarithmic scale
const NEUTRAL = { temperature: 1, top_k: 0, top_p: 1 };
const RANGES = {
  temperature: { min: 0.05, max: 3, step: 0.05 }, top_k: { min: 0, max: 50, step: 1 },
  top_p: { min: 0.05, max: 1, step: 0.01 },
};

/** State that only reshapes what is shown, unless the answer itself is sampled. */
export const SHAPE = [...Object.keys(NEUTRAL), "seed"];

/**
 * `show({step, ids, given, request})`: one of the steps of /steps, the ids before it, whether the model's settings
 * require it, and the `request_id` of the answer.
 * Calls `data.force(token)` when a token is chosen.
 */
export class StepDistribution extends HTMLElement {
  connectedCallback() {
    this.live = {};
    this.sliders = h("div", { class: "row controls shape", role: "group", "aria-label": t("steps.shape") });
    this.list = h("ol", { class: "bars", onkeydown: walk });
    this.below = h("div");
    this.replaceChildren(this.sliders, this.list, this.below);
    this.drawSliders();
    if (this.place) this.show(this.place);
  }

  disconnectedCallback() {
    this.controller?.abort();
  }

  /** What is set, with a slider that is being dragged. */
  get settings() {
    const state = current();
    return { ...Object.fromEntries(SHAPE.map((name) => [name, state[name]])), ...this.live };
  }

  drawSliders() {
    const { settings } = this, state = current();
    this.outputs = {};
    this.sliders.replaceChildren(...Object.entries(RANGES).map(([name, range]) => this.slider(name, range,
      settings[name])),
      numeric("shape-seed", t("decoder.seed"), settings.seed, { min: 0, max: 1e9 },
        (seed) => update({ seed }, { quiet: true })),
      toggle("logarithmic", t("steps.log"), state.logarithmic),
      (this.resetter = button(t("steps.reset"), () => update(NEUTRAL, { quiet: true }), { id: "shape-reset" })));
    this.resetter.disabled = this.isNeutral;
  }

  get isNeutral() {
    return Object.entries(NEUTRAL).every(([name, value]) => this.settings[name] === value);
  }

  slider(name, { min, max, step }, value) {
    this.outputs[name] = h("output", { for: `shape-${name}` }, written(name, value));
    return h("label", { class: "field", for: `shape-${name}` }, h("span", {}, t(`decoder.${name}`), " ",
      this.outputs[name]),
      h("input", { type: "range", id: `shape-${name}`, min, max: Math.max(max, value), step, value: String(value),
        oninput: (event) => this.preview(name, Number(event.target.value)),
        onchange: (event) => this.commit(name, Number(event.target.value)) }));
  }

  /** While a slider is dragged only the picture changes. */
  preview(name, value) {
    this.live = { [name]: value };
    this.outputs[name].textContent = written(name, value);
    this.resetter.disabled = this.isNeutral;
    this.draw();
  }

  commit(name, value) {
    this.live = {};
    update({ [name]: value }, { quiet: true });
  }

  /** Another slider position came from elsewhere: the reset button, the address, the bar above. */
  follow() {
    for (const name of Object.keys(RANGES)) {
      const slider = document.getElementById(`shape-${name}`), value = this.settings[name];
      slider.max = String(Math.max(RANGES[name].max, value));
      slider.value = String(value);
      this.outputs[name].textContent = written(name, value);
    }
    document.getElementById("shape-seed").value = String(this.settings.seed);
    this.resetter.disabled = this.isNeutral;
    this.draw();
  }

  async show(place) {
    this.place = place;
    if (!this.isConnected) return; // drawn when it is
    this.logs = null;
    this.failed = null;
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    this.draw();
    if (place.given) return;
    try {
      const { log_probabilities: logs } = await ask("/distribution", ofDistribution(current(), place.ids), signal);
      if (signal.aborted) return;
      this.logs = logProbabilities(logs);
    } catch (error) {
      if (wasCancelled(error) || signal.aborted) return;
      this.failed = error;
    }
    this.draw();
  }

  draw() {
    if (!this.place || !this.isConnected) return;
    const { step, given } = this.place;
    const focus = this.list.contains(document.activeElement) ? document.activeElement.id : "";
    this.shaped = this.logs && shape(this.logs, this.settings);
    const rows = step.top.map((each) => ({ ...each, now: this.shaped ? this.shaped[each.id] : each.probability }));
    this.list.replaceChildren(...rows.map((row, n) => this.bar(row, n)), this.rest(rows));
    this.setAttribute("data-ready", String(Boolean(this.shaped || given || this.failed)));
    this.below.replaceChildren(...this.notes());
    if (focus) document.getElementById(focus)?.focus();
  }

  bar({ piece, id, probability, now }, n) {
    const { step } = this.place, removed = this.shaped && now === 0;
    const told = [t("steps.forceThis", { piece: visible(piece), share: percent(now) }),
      this.isNeutral ? "" : t("steps.before.shaping", { share: percent(probability) }),
      removed ? t("steps.removed") : ""].filter(Boolean).join(" · ");
    return h("li", {}, h("button", { type: "button", id: `could-${n}`, "data-token": id, "data-share": now,
      class: [piece === step.chosen && id === step.chosen_id ? "chosen" : "", removed ? "removed" : ""].join(" ").trim(),
      onclick: () => this.data.force(id), "aria-label": told, title: told },
      h("span", { class: "name" }, visible(piece)), this.track(now, probability), h("span", { class: "number" },
        removed ? "0 %" : percent(now))));
  }

  /** A thin mark stands where the model itself puts the token. */
  track(now, model) {
    const bar = track(scaled(now));
    if (!this.isNeutral && this.shaped) bar.append(h("i", { style: { left: `${scaled(model) * 100}%` } }));
    return bar;
  }

  rest(rows) {
    const count = (this.logs?.length ?? chosen()?.config?.target_vocab_size ?? rows.length) - rows.length;
    if (count <= 0) return "";
    const share = Math.max(0, 1 - rows.reduce((sum, { now }) => sum + now, 0));
    return h("li", { class: "rest", "data-share": share }, h("span", { class: "name" }, t("steps.others", { count })),
      track(scaled(share)), h("span", { class: "number" }, percent(share)));
  }

  notes() {
    const found = [];
    if (current().logarithmic) found.push(h("p", { class: "note" }, t("steps.scale", { low: "0.0001 %" })));
    if (this.place.given) found.push(h("p", { class: "note" }, t("steps.unshaped")));
    if (this.failed) found.push(h("p", { class: "note" }, t(this.failed.code === "not_saved" ? "error.not_saved"
      : "error.unknown")));
    if (this.shaped) found.push(...this.sampled());
    const smoothing = smoothingNote();
    return smoothing ? [...found, smoothing] : found;
  }

  sampled() {
    const { seed } = this.settings, { request, ids } = this.place;
    const id = draw(this.shaped, seed, request, ids.length);
    const kept = this.shaped.reduce((sum, each) => sum + (each > 0), 0);
    const name = h("strong", { class: "token still", "data-sampled": id }, this.nameOf(id));
    return [h("p", { class: "sampled" }, t("steps.sampled", { seed }), " ", name, " ", percent(this.shaped[id])),
      h("p", { class: "note" }, t(current().kind === "sample" ? "steps.sampled.follow" : "steps.sampled.note")),
      h("p", { class: "note" }, t("steps.kept", { kept, count: this.logs.length }))];
  }

  /** Only a token that is not among the shown ones needs the vocabulary. */
  nameOf(id) {
    const shown = this.place.step.top.find((each) => each.id === id)?.piece ?? this.pieces?.[id];
    if (shown === undefined) this.readVocabulary();
    return visible(shown ?? `#${id}`);
  }

  async readVocabulary() {
    this.reading ??= ask(vocabularyPath()).catch(() => null);
    const found = await this.reading;
    if (!found || this.pieces) return;
    this.pieces = found.pieces;
    this.draw();
  }
}

/** Why a model that is certain says 90 %: what label smoothing lets the right token reach. */
function smoothingNote() {
  const { label_smoothing: epsilon, config } = chosen() ?? {}, count = config?.target_vocab_size;
  if (!epsilon || !count) return null;
  return h("p", { class: "note", id: "smoothing" }, t("steps.smoothing", { epsilon, count,
    share: percent(1 - epsilon + epsilon / count) }));
}

function scaled(share) {
  if (!current().logarithmic) return share;
  return share > 0 ? Math.max(0, 1 - Math.log10(share) / Math.log10(LOWEST)) : 0;
}

const written = (name, value) => (name === "top_k" ? String(value) : number(value, 2));

function walk(event) {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!move) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll("button")];
  all[Math.min(Math.max(all.indexOf(document.activeElement) + move, 0), all.length - 1)]?.focus();
}

customElements.define("step-distribution", StepDistribution);
