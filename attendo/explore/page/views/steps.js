// Decoding one token at a time: what was read, what could have come, and what comes if another token is forced.

import { ask, wasCancelled } from "../api.js";
import { palette } from "../colour.js";
import { h, number, percent, track, visible } from "../dom.js";
import { CHANGES } from "../edits.js";
import { colon, t } from "../i18n.js";
import { chosen } from "../models.js";
import { button } from "../parts/controls.js";
import "../parts/step-attention.js";
import { SHAPE } from "../parts/step-distribution.js";
import { DECODER, forcedOf, ofDistribution, ofSteps, prefixOf } from "../requests.js";
import { rect, stacked, tableScene, text } from "../scene.js";
import { current, update } from "../store.js";
import { traceOf } from "../tensors.js";
import { complaint, View } from "../view.js";

const PAUSE = 900; // milliseconds a step is shown while it plays
const SAVED = 500_000; // numbers of distributions that a saved page holds; of more, only those of the shown step
const NAMED = 14; // steps whose tokens fit under the chart; of more, every fifth has its number

export class Steps extends View {
  static name = "steps";
  static asks = ["model", "checkpoint", "text", "prefix", ...CHANGES, ...DECODER];
  static draws = ["step", "logarithmic", "show", "layer", "head", ...SHAPE];

  /** The answer with the forced tokens, and the free one beside it. */
  async load(state, signal) {
    const answer = await ask("/steps", ofSteps(state), signal), { attention } = answer;
    const free = prefixOf(state).length ? await ask("/steps", ofSteps({ ...state, prefix: "" }), signal) : null;
    return { ...answer, free, trace: attention && await traceOf(attention) };
  }

  /** What a saved page needs besides: the distributions. */
  async details(state) {
    const { steps, begin } = await this.load(state), size = steps.length * chosen().config.target_vocab_size;
    for (const [n] of steps.entries()) {
      if (n < begin || (size > SAVED && n !== state.step)) continue;
      await ask("/distribution", ofDistribution(state, idsBefore(steps, n)));
    }
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.pause();
  }

  fixed(state) {
    return state.prefix ? [h("div", { class: "row controls" }, this.freedom())] : [];
  }

  content(data, state) {
    const last = data.steps.length - 1;
    this.slider = h("input", { id: "step", type: "range", min: 0, max: last, step: 1,
      value: String(Math.min(state.step, last)), "aria-label": t("steps.slider"),
      oninput: (event) => { this.pause(); this.go(Number(event.target.value)); } });
    this.player = button("", () => (this.timer ? this.pause() : this.play()), { id: "play" });
    this.counter = h("output", { class: "counter" });
    this.answer = h("div", {});
    this.read = h("section", { class: "card" });
    this.freeBars = h("div", { class: "free-bars" });
    this.shaping = h("step-distribution", { data: { force: (token) => this.force(this.at, token) } });
    this.attention = data.trace && h("step-attention", { data: data.trace });
    this.showPlayer();
    this.show();
    return [
      h("div", { class: "row controls" },
        button("‹", () => this.go(current().step - 1), { id: "before", "aria-label": t("steps.before") }), this.player,
        button("›", () => this.go(current().step + 1), { id: "after", "aria-label": t("steps.after") }),
        this.slider, this.counter, state.prefix ? this.freedom() : null),
      h("section", { class: "card" }, h("h3", {}, t("steps.answer")), this.answer,
        data.ended ? null : h("p", { class: "note" }, t("steps.unended"))),
      h("div", { class: "columns" },
        h("div", {}, this.read, h("section", { class: "card" }, h("h3", {}, t("steps.attention")), this.attention
          ?? h("p", { class: "note" }, t("steps.noMaps")))),
        h("section", { class: "card" }, h("h3", {}, t("steps.top")), h("p", { class: "note" }, t("steps.force")),
          this.shaping, this.freeBars, this.otherToken())),
    ];
  }

  freedom() {
    return button(t("steps.free"), () => update({ prefix: "", forced: "" }), { id: "free" });
  }

  /** Sliders of a sampled answer change the answer; of another one only what is shown. */
  patch(changed) {
    const names = [...changed];
    if (this.failed || names.some((name) => !Steps.draws.includes(name))) return this.draw();
    if (names.some((name) => SHAPE.includes(name))) this.shaping.follow();
    if (changed.has("logarithmic")) {
      this.shaping.draw();
      this.showFree();
    }
    if (["show", "layer", "head"].some((name) => changed.has(name))) this.attention?.show(this.at);
    if (changed.has("step")) this.show();
  }

  get at() {
    return Math.max(0, Math.min(current().step, this.data.steps.length - 1));
  }

  isForced(n) {
    return forcedOf(current()).includes(n);
  }

  show() {
    const focus = this.read.contains(document.activeElement) || this.answer.contains(document.activeElement)
      ? document.activeElement.id : "";
    const { steps, begin } = this.data, { at } = this, step = steps[at];
    this.slider.value = String(at);
    this.counter.textContent = t("steps.counter", { step: at + 1, count: steps.length });
    this.answer.replaceChildren(this.data.free ? this.branches() : h("div", { class: "tokens" },
      steps.map((_, n) => this.token(n))));
    this.read.replaceChildren(...this.facts(step));
    this.shaping.show({ step, ids: idsBefore(steps, at), given: at < begin,
      request: this.data.request_id });
    this.attention?.show(at);
    this.showFree();
    if (focus) document.getElementById(focus)?.focus();
  }

  token(n, more = {}) {
    const { steps, begin } = this.data, { at } = this, each = steps[n];
    const told = this.isForced(n) ? t("steps.forced") : n < begin ? t("steps.given") : "";
    return h("button", { type: "button", id: `token-${n}`,
      class: `token${n === at ? " chosen" : ""}${this.isForced(n) ? " forced" : ""}${n > at ? " later" : ""}`,
      "aria-current": n === at ? "step" : null, onclick: () => this.go(n),
      title: [percent(each.probability), told].filter(Boolean).join(" · "), ...more }, visible(each.chosen));
  }

  /** Both answers, position under position. */
  branches() {
    const { steps, free, log_probability: log } = this.data, { at } = this;
    const parted = free.steps.findIndex((each, n) => each.chosen_id !== steps[n]?.chosen_id);
    const placed = (row, n) => ({ "grid-row": String(row), "grid-column": String(n + 2) });
    const label = (row, key, value) => h("div", { class: "branch", style: { "grid-row": String(row) } }, t(key),
      h("small", {}, t("steps.total", { log: number(value, 2) })));
    return h("div", { class: "branches", tabindex: "0", role: "group", "aria-label": t("steps.answer") },
      label(1, "steps.branch", log), steps.map((_, n) => this.token(n, { style: placed(1, n) })),
      label(2, "steps.own", free.log_probability), free.steps.map((each, n) => h("span", {
        class: `token still${n === at ? " chosen" : ""}${n === parted ? " parted" : ""}${n > at ? " later" : ""}`,
        title: [percent(each.probability), n === parted ? t("steps.parted") : ""].filter(Boolean).join(" · "),
        style: placed(2, n) }, visible(each.chosen))));
  }

  /** What the free answer could have said at this step. */
  showFree() {
    const { free } = this.data, step = free?.steps[this.at];
    if (!free) return this.freeBars.replaceChildren();
    this.freeBars.replaceChildren(h("h4", {}, t("steps.ownTop")), step ? h("ol", { class: "bars" },
      step.top.slice(0, 5).map((each) => h("li", { class: each.id === step.chosen_id ? "rest chosen" : "rest" },
        h("span", { class: "name" }, visible(each.piece)), track(each.probability),
        h("span", { class: "number" }, percent(each.probability))))) : h("p", { class: "note" }, t("steps.ended")));
  }

  facts(step) {
    const forced = this.isForced(this.at) ? ` · ${t("steps.forced")}` : "";
    const rows = [["steps.chosen", visible(step.chosen) + forced],
      ["steps.probability", percent(step.probability)], ["steps.entropy", number(step.entropy, 4)],
      ["steps.eos", percent(step.eos)], ["steps.cache", String(step.cache)]];
    return [h("h3", {}, t("steps.read")),
      h("div", { class: "tokens small" }, step.read.map((piece, n) => this.readToken(piece, n))),
      h("dl", { class: "facts stacked" }, rows.map(([key, value]) => [h("dt", {}, t(key)),
        h("dd", { "data-number": key }, value)])),
      h("ul", { class: "legend spark-legend" }, h("li", { style: { "--mark": palette().accent } }, t("steps.entropy")),
        h("li", { style: { "--mark": palette().other } }, t("steps.eos"))), this.chart()];
  }

  /** What is read at a place was chosen, or forced, a step before; the first tokens always stand there. */
  readToken(piece, n) {
    const { first } = this.data, forced = n > first && this.isForced(n - first - 1);
    return h("span", { class: `token still${forced ? " forced" : ""}`, title: forced ? t("steps.forced") : null },
      visible(piece));
  }

  /** Entropy (scale on the left) and the probability of the end (on the right), over all steps. */
  chart() {
    const { steps } = this.data, most = Math.max(...steps.map((step) => step.entropy), 0.01),
      at = Math.max(0, Math.min(current().step, steps.length - 1));
    const named = (step, n) => (steps.length <= NAMED ? visible(step.chosen) : n === 0 || (n + 1) % 5 === 0
      ? String(n + 1) : "");
    return h("div", { class: "spark-box", role: "img", "aria-label": t("steps.chart",
      { list: steps.map((step) => `${visible(step.chosen)} ${number(step.entropy, 2)}`).join(", ") }) },
      h("div", { class: "spark-scale" }, h("span", {}, number(most, 2)), h("span", {}, "0")),
      h("div", { class: "spark" }, steps.map((step, n) => h("span", { class: n === at ? "now" : "" },
        h("i", { style: { height: `${(step.entropy / most) * 100}%` } }),
        h("u", { style: { height: `${step.eos * 100}%` } })))),
      h("div", { class: "spark-scale of-end" }, h("span", {}, "100 %"), h("span", {}, "0 %")),
      h("div", { class: "spark-steps" }, steps.map((step, n) => h("span", { class: n === at ? "now" : "" },
        named(step, n)))));
  }

  otherToken() {
    return [h("form", { class: "row", onsubmit: (event) => { event.preventDefault();
      if (this.other.value) this.forceTyped(this.at, this.other.value); } },
      h("label", { class: "field wide" }, h("span", {}, t("steps.other")),
        (this.other = h("input", { id: "other-piece", type: "text" }))),
      h("button", { type: "submit", id: "force" }, t("steps.go"))),
    (this.refused = h("div"))];
  }

  force(at, token) {
    this.pause();
    const forced = [...forcedOf(current()).filter((n) => n < at), at].join(",");
    update({ prefix: this.prefixWith(at, token), forced, step: at });
  }

  /** What was typed may be no token: then all stays as it is, and the reason stands below. */
  async forceTyped(at, token) {
    const prefix = this.prefixWith(at, token), { signal } = this.controller, place = this.refused;
    try {
      await ask("/steps", ofSteps({ ...current(), prefix }), signal);
    } catch (error) {
      if (wasCancelled(error) || signal.aborted) return;
      place.replaceChildren(complaint(error, () => this.forceTyped(at, token)));
      return;
    }
    this.other = null;
    this.force(at, token);
  }

  /** What was forced before, then what was chosen, then this. */
  prefixWith(at, token) {
    const before = prefixOf(current()).slice(0, at);
    for (let n = before.length; n < at; n++) before.push(this.data.steps[n].chosen_id ?? this.data.steps[n].chosen);
    return JSON.stringify([...before, token]);
  }

  go(step) {
    const last = this.data.steps.length - 1;
    update({ step: Math.min(Math.max(step, 0), last) }, { quiet: true });
  }

  play() {
    if (current().step >= this.data.steps.length - 1) this.go(0);
    this.timer = setInterval(() => {
      this.go(current().step + 1);
      if (current().step >= this.data.steps.length - 1) this.pause();
    }, PAUSE);
    this.showPlayer();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.showPlayer();
  }

  showPlayer() {
    if (this.player) this.player.textContent = t(this.timer ? "steps.pause" : "steps.play");
  }

  picture() {
    const { steps } = this.data, step = steps[Math.max(0, Math.min(current().step, steps.length - 1))],
      { accent, faint } = palette();
    const bars = step.top.flatMap((each, n) => [text(110, n * 24 + 15, visible(each.piece), { anchor: "end" }),
      rect(120, n * 24 + 4, 300, 14, faint), rect(120, n * 24 + 4, 300 * each.probability, 14, accent),
      text(430, n * 24 + 15, percent(each.probability))]);
    const rows = steps.map((each, n) => [String(n + 1), visible(each.chosen), percent(each.probability),
      number(each.entropy, 4), percent(each.eos), String(each.cache)]);
    return stacked([
      { title: `${t("steps.read")}${colon()}${step.read.map(visible).join(" ")}`,
        scene: { width: 500, height: step.top.length * 24, items: bars } },
      { title: this.data.text, scene: tableScene(["", ...["chosen", "probability", "entropy", "eos", "cache"]
        .map((each) => t(`steps.${each}`))], rows) },
    ]);
  }
}

/** The ids that were chosen before a step. */
const idsBefore = (steps, at) => steps.slice(0, at).map((step) => step.chosen_id);
