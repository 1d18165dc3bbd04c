// The whole model at work: both stacks with the numbers of this sentence, played box by box and token by token.

import { ask } from "../api.js";
import { h, number, percent, visible } from "../dom.js";
import { CHANGES } from "../edits.js";
import { t } from "../i18n.js";
import { button, choice, toggle } from "../parts/controls.js";
import { answersOf } from "../parts/module-panel.js";
import { Network } from "../parts/network.js";
import "../parts/network-figure.js";
import { labelOf, normsOf } from "../parts/network-labels.js";
import { networkScene } from "../parts/network-picture.js";
import { DECODER, ofForward } from "../requests.js";
import { framed } from "../scene.js";
import { current, update } from "../store.js";
import { View } from "../view.js";

const BOX = 520, TOKEN = 900; // milliseconds that a box is lit, and that a new token is shown

export class Home extends View {
  static name = "home";
  static asks = ["model", "checkpoint", "text", "target", ...CHANGES, ...DECODER];
  static draws = ["step", "teacher", "module", "follow", "unfolded", "all_heads", "head"];

  async load(state, signal) {
    return Network.of(await ask("/forward", ofForward(state), signal));
  }

  /** What a page without a server can show: the boxes of the layers that are open. */
  async frames(state) {
    const network = await this.load(state);
    for (const box of network.boxes) {
      const isDrawn = box.layer === null || network.openLayers(box.stack, state.unfolded).has(box.layer);
      const heads = box.part === "attention" ? network.answer.heads : 1;
      for (let head = 0; isDrawn && box.operations.length && head < heads; head++) {
        await answersOf({ network, box }, { ...state, head }).catch(() => null);
      }
    }
  }

  disconnectedCallback() {
    this.pause();
    super.disconnectedCallback();
  }

  content(network, state) {
    this.pause();
    this.figure = h("network-figure", { data: { network, state },
      onfollow: ({ detail }) => this.caption(detail) });
    this.player = h("div", { class: "player", role: "group", "aria-label": t("home.player") });
    this.drawPlayer();
    return [h("div", { class: "row controls home-controls" },
      network.isParallel ? null : choice("teacher", t("home.mode"), state.teacher, [[false, t("home.generating")], [true, t("home.training")]]),
      network.canFold ? toggle("unfolded", t("home.unfold"), state.unfolded === "all", (on) => update({ unfolded: on
        ? "all" : "" }, { quiet: true })) : null,
      h("p", { class: "note mode-note" }, this.modeNote(state))),
    network.answer.masked ? null : h("p", { class: "notice" }, t("home.unmasked")), this.figure, this.player].filter(Boolean);
  }

  modeNote({ teacher }) {
    if (this.data.isParallel) return t("home.parallel.note");
    return t(teacher ? "home.training.note" : "home.generating.note");
  }

  patch(changed) {
    const { figure, data } = this, state = current();
    if (this.failed || !figure?.isConnected || ["lang", "theme", "models"].some((name) => changed.has(name))) {
      this.draw();
      return;
    }
    figure.data = { network: data, state };
    if (["module", "unfolded", "all_heads", "head"].some((name) => changed.has(name))) this.redrawFigure();
    else figure.show(state);
    if (changed.has("step") && !changed.has("module")) figure.querySelector("module-panel")?.refresh();
    if (changed.has("teacher")) {
      this.querySelector(".mode-note").textContent = this.modeNote(state);
      this.pause();
      this.at = null;
    }
    this.drawPlayer();
  }

  /** The focus stays where it was, and so does the box under the pointer. */
  redrawFigure() {
    const focus = this.figure.contains(document.activeElement) ? document.activeElement.id : "";
    const before = focus ? document.getElementById(focus).getBoundingClientRect().top : 0;
    this.figure.render();
    this.figure.light(this.lit?.id ?? null);
    const found = focus && document.getElementById(focus);
    if (!found) return;
    found.focus({ preventScroll: true });
    this.figure.addEventListener("fit", () => scrollBy(0, found.getBoundingClientRect().top - before), { once: true });
  }

  drawPlayer() {
    const { data: network } = this, state = current(), step = network.step(state);
    const focus = this.player.contains(document.activeElement) ? document.activeElement.id : "";
    this.note ??= h("p", { class: "caption", role: "status" });
    const move = (name, to, sign) => button(sign, () => { this.pause(); update({ step: to }, { quiet: true }); },
      { id: `home-${name}`, "aria-label": t(`home.${name}`), title: t(`home.${name}`), disabled: to < 0
        || to >= network.length });
    this.player.replaceChildren(button(t(this.playing ? "home.pause" : "home.play"), () => (this.playing ? this.pause()
      : this.play()), { id: "home-play", class: "primary" }),
    h("div", { class: "group" }, button("◂", () => this.nudge(-1), { id: "box-before", "aria-label": t("home.box.before"),
      title: t("home.box.before") }), h("span", { class: "of" }, t("home.box")),
    button("▸", () => this.nudge(1), { id: "box-after", "aria-label": t("home.box.after"), title: t("home.box.after") })),
    h("div", { class: "group" }, move("before", step - 1, "◂"), h("span", { class: "of" }, t("home.step", { step: step + 1,
      count: network.length }), " ", h("b", {}, visible(network.pieces.predicted[step]))), move("after", step + 1, "▸")),
    this.note);
    if (focus) document.getElementById(focus)?.focus();
    this.caption(this.figure.followed ?? null);
  }

  /** The boxes of one pass. While generating, the encoder is computed only for the first token. */
  sequence() {
    const { data: network } = this, { unfolded } = current();
    const skipped = !this.isWhole && network.step(current()) > 0;
    let folded = null;
    return network.boxes.filter((box) => !(skipped && box.stack === "encoder")).filter((box) => {
      if (box.layer === null || network.openLayers(box.stack, unfolded).has(box.layer)) return true;
      const layer = `${box.stack}.${box.layer}`, first = layer !== folded; // a folded layer is lit once
      folded = layer;
      return first;
    });
  }

  /** Whether one pass predicts all tokens: in training, or by a network that always does. */
  get isWhole() {
    return current().teacher || this.data.isParallel;
  }

  async play() {
    const playing = (this.playing = {});
    this.drawPlayer();
    while (this.playing === playing) {
      const boxes = this.sequence(), at = boxes.findIndex((box) => box.id === this.lit?.id);
      if (at + 1 < boxes.length) {
        this.show(boxes[at + 1]);
        await pause(boxes[at + 1].part === "softmax" ? TOKEN : BOX);
      } else if (!this.isWhole && this.data.step(current()) + 1 < this.data.length) {
        this.lit = null;
        update({ step: this.data.step(current()) + 1 }, { quiet: true });
      } else break;
    }
    if (this.playing === playing) this.pause();
  }

  pause() {
    if (!this.playing) return;
    this.playing = null;
    if (this.player?.isConnected) this.drawPlayer();
  }

  /** One box back or on. */
  nudge(by) {
    this.pause();
    const boxes = this.sequence(), at = boxes.findIndex((box) => box.id === this.lit?.id), to = at < 0 ? (by > 0 ? 0
      : boxes.length - 1) : at + by;
    if (boxes[to]) this.show(boxes[to]);
    else if (by > 0 && !this.isWhole && this.data.step(current()) + 1 < this.data.length) {
      this.lit = null;
      update({ step: this.data.step(current()) + 1 }, { quiet: true });
      this.nudge(1);
    }
  }

  show(box) {
    this.lit = box;
    const element = this.figure.light(box.id), { top, bottom } = element?.getBoundingClientRect() ?? { top: 0, bottom: 0 };
    const room = innerHeight - this.player.offsetHeight - 24;
    if (top < 12) scrollBy({ top: top - 12, behavior: "smooth" });
    else if (bottom > room) scrollBy({ top: bottom - room, behavior: "smooth" });
    this.caption(null);
  }

  /** One line on the box that is lit, or on the token that is followed. */
  caption(place) {
    if (!this.note) return;
    const { data: network } = this, state = current(), step = network.answer.steps[network.step(state)];
    if (place) {
      const norms = normsOf(network, place), name = visible(network.lanes(place.stack)[place.lane] ?? "");
      this.note.replaceChildren(h("b", {}, name), ` · ${t("home.norms")} ${norms.map(([, norm]) => norm).join(" → ")}`);
    } else if (this.lit) {
      const { part, stack, site } = this.lit, key = part === "attention" ? (site.endsWith(".cross") ? "cross"
        : stack === "encoder" || !this.lit.causal ? "self" : "masked") : part;
      this.note.replaceChildren(h("b", {}, labelOf(this.lit)), ` · ${t(`home.explain.${key}`)}`);
    } else this.note.replaceChildren(t("home.hint", { token: visible(step.piece), share: percent(step.probability),
      loss: number(network.answer.loss, 3) }));
  }

  subject() {
    return t("home.step", { step: this.data.step(current()) + 1, count: this.data.length });
  }

  picture() {
    return framed(networkScene(this.figure));
  }

  exported(network) {
    return network.answer;
  }
}

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
