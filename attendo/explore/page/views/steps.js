// Decoding one token at a time: what was read, what could have come, and what comes if another token is forced.

import { ask, wasCancelled } from "../api.js";
import { palette } from "../colour.js";
import { h, number, percent, track, visible } from "../dom.js";
import { t } from "../i18n.js";
import { button } from "../parts/controls.js";
import { DECODER, ofSteps, prefixOf } from "../requests.js";
import { rect, stacked, tableScene, text } from "../scene.js";
import { current, update } from "../store.js";
import { complaint, View } from "../view.js";

const PAUSE = 900; // milliseconds a step is shown while it plays
const NAMED = 14; // steps whose tokens fit under the chart; of more, every fifth has its number

export class Steps extends View {
  static name = "steps";
  static asks = ["model", "checkpoint", "text", "prefix", "heads", ...DECODER];
  static draws = ["step"];

  load(state, signal) {
    return ask("/steps", ofSteps(state), signal);
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
    this.answer = h("div", { class: "tokens" });
    this.detail = h("div", { class: "columns" });
    this.showPlayer();
    this.show();
    return [
      h("div", { class: "row controls" },
        button("‹", () => this.go(current().step - 1), { id: "before", "aria-label": t("steps.before") }), this.player,
        button("›", () => this.go(current().step + 1), { id: "after", "aria-label": t("steps.after") }),
        this.slider, this.counter, state.prefix ? this.freedom() : null),
      h("section", { class: "card" }, h("h3", {}, t("steps.answer")), this.answer,
        data.ended ? null : h("p", { class: "note" }, t("steps.unended"))),
      this.detail,
    ];
  }

  freedom() {
    return button(t("steps.free"), () => update({ prefix: "" }), { id: "free" });
  }

  patch(changed) {
    if (changed.has("step") && changed.size === 1 && !this.failed) this.show();
    else this.draw();
  }

  show() {
    const focus = this.detail.contains(document.activeElement) || this.answer.contains(document.activeElement)
      ? document.activeElement.id : "";
    const { steps } = this.data, at = Math.max(0, Math.min(current().step, steps.length - 1)), step = steps[at];
    this.slider.value = String(at);
    this.counter.textContent = t("steps.counter", { step: at + 1, count: steps.length });
    this.answer.replaceChildren(...steps.map((each, n) => h("button", { type: "button",
      id: `token-${n}`,
      class: `token${n === at ? " chosen" : ""}${each.forced ? " forced" : ""}${n > at ? " later" : ""}`,
      "aria-current": n === at ? "step" : null, onclick: () => this.go(n),
      title: [percent(each.probability), each.forced ? t("steps.forced") : ""].filter(Boolean).join(" · ") },
      visible(each.chosen))));
    this.detail.replaceChildren(this.facts(step), this.bars(step, at, this.other?.value ?? ""));
    if (focus) document.getElementById(focus)?.focus();
  }

  facts(step) {
    const rows = [["steps.chosen", visible(step.chosen) + (step.forced ? ` · ${t("steps.forced")}` : "")],
      ["steps.probability", percent(step.probability)], ["steps.entropy", number(step.entropy, 4)],
      ["steps.eos", percent(step.eos)], ["steps.cache", String(step.cache)]];
    return h("section", { class: "card" }, h("h3", {}, t("steps.read")),
      h("div", { class: "tokens small" }, step.read.map((piece, n) => this.readToken(piece, n))),
      h("dl", { class: "facts stacked" }, rows.map(([key, value]) => [h("dt", {}, t(key)),
        h("dd", { "data-number": key }, value)])),
      h("ul", { class: "legend spark-legend" }, h("li", { style: { "--mark": palette().accent } }, t("steps.entropy")),
        h("li", { style: { "--mark": palette().other } }, t("steps.eos"))), this.chart());
  }

  /** What is read at a place was chosen, or forced, a step before; the first token always stands there. */
  readToken(piece, n) {
    const forced = n > 0 && this.data.steps[n - 1].forced;
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

  bars(step, at, typed) {
    return h("section", { class: "card" }, h("h3", {}, t("steps.top")), h("p", { class: "note" }, t("steps.force")),
      h("ol", { class: "bars", onkeydown: walk }, step.top.map((each, n) => h("li", {},
        h("button", { type: "button", id: `could-${n}`, class: each.piece === step.chosen ? "chosen" : "",
          onclick: () => this.force(at, each.id ?? each.piece), "aria-label": t("steps.forceThis",
          { piece: visible(each.piece), share: percent(each.probability) }) },
          h("span", { class: "name" }, visible(each.piece)),
          track(each.probability),
          h("span", { class: "number" }, percent(each.probability)))))),
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault();
        if (this.other.value) this.forceTyped(at, this.other.value); } },
        h("label", { class: "field wide" }, h("span", {}, t("steps.other")),
          (this.other = h("input", { id: "other-piece", type: "text", value: typed }))),
          h("button", { type: "submit", id: "force" }, t("steps.go"))),
      (this.refused = h("div")));
  }

  force(at, token) {
    this.pause();
    update({ prefix: this.prefixWith(at, token), step: at });
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
      { title: `${t("steps.read")}: ${step.read.map(visible).join(" ")}`,
        scene: { width: 500, height: step.top.length * 24, items: bars } },
      { title: this.data.text, scene: tableScene(["", ...["chosen", "probability", "entropy", "eos", "cache"]
        .map((each) => t(`steps.${each}`))], rows) },
    ]);
  }
}

function walk(event) {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!move) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll("button")];
  all[Math.min(Math.max(all.indexOf(document.activeElement) + move, 0), all.length - 1)]?.focus();
}
