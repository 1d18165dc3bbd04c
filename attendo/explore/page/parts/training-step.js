// The training step over all views: a slider through the checkpoints of a run, which can be played.

import { stream } from "../api.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { checkpointsOf as namesOf, stepName } from "../models.js";
import { ofStream } from "../requests.js";
import { current, subscribe, update } from "../store.js";
import { View } from "../view.js";
import { VIEWS } from "../views/all.js";
import { button, toggle } from "./controls.js";

const PAUSE = 800; // milliseconds a checkpoint is shown while it plays

class TrainingStep extends HTMLElement {
  connectedCallback() {
    this.ready = new Set();
    this.end = subscribe((changed) => this.follow(changed));
    this.draw();
  }

  disconnectedCallback() {
    this.end();
    this.pause();
    this.loading?.abort();
  }

  /** What was read ahead is for one sentence, view and decoder: anything but the checkpoint makes it old. */
  follow(changed) {
    if (changed.has("lang") || changed.has("model") || changed.has("models")) this.draw();
    else this.show();
    if (changed.size === 1 && changed.has("checkpoint")) return;
    this.loading?.abort();
    this.loading = null;
    this.ready.clear();
    this.tell();
    if (this.playing) this.readAhead();
  }

  draw() {
    const names = namesOf();
    this.hidden = names.length < 2;
    if (this.hidden) return this.pause();
    const begin = () => this.readAhead();
    this.player = button("", () => (this.playing ? this.pause() : this.play()), { id: "timeline-play" });
    this.slider = h("input", { id: "checkpoint", type: "range", min: 0, max: names.length - 1, step: 1,
      oninput: (event) => this.move(Number(event.target.value)),
      onpointerenter: begin, onfocus: begin });
    this.place = h("output", { class: "counter", for: "checkpoint" });
    this.told = h("small", { class: "unseen", role: "status" });
    this.ahead = h("span", { class: "ahead" });
    this.holder = h("span", { class: "holder" });
    this.replaceChildren(h("div", { class: "timeline", role: "group", "aria-label": t("timeline.title") },
      this.player, h("label", { for: "checkpoint" }, t("timeline.title")),
      h("span", { class: "range" }, this.slider, this.ahead), this.place, this.holder, this.told));
    this.show();
    this.tell();
  }

  get at() {
    const found = namesOf().indexOf(current().checkpoint);
    return found < 0 ? namesOf().length - 1 : found;
  }

  show() {
    if (this.hidden) return;
    const { checkpoint, hold } = current(), name = stepName(namesOf()[this.at]);
    this.slider.value = String(this.at);
    this.slider.setAttribute("aria-valuetext", name);
    this.place.textContent = name;
    this.player.textContent = t(this.playing ? "timeline.pause" : "timeline.play");
    // Only at a checkpoint: the final model looks at its own answer anyway.
    const focused = this.holder.contains(document.activeElement);
    this.holder.replaceChildren(checkpoint ? toggle("hold", t("timeline.hold"), hold) : "");
    if (focused) document.getElementById("hold")?.focus();
  }

  /** `pause` draws the slider anew, at the step that is shown. */
  move(at) {
    this.pause();
    this.go(at);
  }

  go(at) {
    update({ checkpoint: namesOf()[Math.min(Math.max(at, 0), namesOf().length - 1)] }, { quiet: true });
  }

  async play() {
    const playing = (this.playing = {});
    if (this.at === namesOf().length - 1) this.go(0);
    this.show();
    this.readAhead();
    while (this.playing === playing && this.at < namesOf().length - 1) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      await this.until(namesOf()[this.at + 1], playing);
      if (this.playing === playing) this.go(this.at + 1);
    }
    if (this.playing === playing) this.pause();
  }

  pause() {
    this.playing = null;
    if (this.player) this.show();
  }

  /** A picture that is not there yet is waited for, so that none is skipped. */
  async until(name, playing) {
    while (this.playing === playing && this.loading && !this.ready.has(name)) await new Promise((resolve) =>
      setTimeout(resolve, 50));
  }

  /** Asks for what the view shows at each checkpoint, one after the other; the answers are kept. */
  async readAhead() {
    if (this.loading || this.hidden || !current().text.trim()) return;
    const { signal } = (this.loading = new AbortController());
    const names = namesOf(), from = this.at;
    for (let n = 0; n < names.length; n++) {
      const checkpoint = names[(from + n) % names.length], state = { ...current(), checkpoint };
      try {
        for await (const _ of stream("/answer", ofStream(state), signal, { again: false }));
        await View.loaded(new VIEWS[state.view](), state, signal);
      } catch { /* the view tells it when it is shown */ }
      if (signal.aborted) return;
      this.ready.add(checkpoint);
      this.tell();
    }
  }

  tell() {
    if (!this.ahead) return;
    const count = this.ready.size, all = namesOf().length;
    this.ahead.style.setProperty("--ready", String(count / all));
    this.told.textContent = count === all ? t("timeline.ready", { count }) : "";
  }
}

customElements.define("training-step", TrainingStep);
