// The whole network as in the paper: encoder on the left, decoder on the right, with the numbers of one forward pass.

import { h, percent, svg, track, visible } from "../dom.js";
import { t } from "../i18n.js";
import { textWidth } from "../scene.js";
import { update } from "../store.js";
import { NetworkBoxes } from "./network-boxes.js";
import { shapeOf } from "./network-labels.js";

const UPRIGHT = 13; // pixels of a lane in which a token can be named upright
const LETTERS = 13, BESIDE = 8; // pixels: the size of the letters of a token, and its borders

/**
 * `data`: {network, state}. `state` has `step`, `teacher`, `module`, `follow`, `unfolded`, `all_heads`, `head`.
 * Fires `follow` {stack, lane} or null when a token is pointed at.
 */
export class NetworkFigure extends NetworkBoxes {
  connectedCallback() {
    this.classList.add("network");
    this.whenResized = new ResizeObserver(() => this.fit());
    addEventListener("beforeprint", this.whenPrinted = () => this.paintAll());
    this.render();
  }

  disconnectedCallback() {
    this.whenResized?.disconnect();
    this.watcher?.disconnect();
    removeEventListener("beforeprint", this.whenPrinted);
  }

  get network() {
    return this.data.network;
  }

  /** A network that predicts all tokens at once has no steps. */
  get state() {
    return this.network.isParallel ? { ...this.data.state, teacher: true } : this.data.state;
  }

  /** All of it again; the boxes that are lit and the token that is followed stay. */
  render() {
    const { network, state } = this;
    this.strips = [];
    this.told = [];
    this.maps = [];
    this.widest = {};
    this.wires = svg("svg", { class: "wires", "aria-hidden": "true" });
    this.sides = Object.fromEntries(network.stacks.map((stack) => [stack, this.stack(stack)]));
    this.marked = Object.fromEntries(Object.entries(this.sides).map(([stack, element]) => [stack,
      element.querySelectorAll(":scope > .lane, .heads")]));
    this.classList.toggle("single", network.stacks.length === 1);
    for (const stack of network.stacks) this.classList.toggle(`wide-${stack}`, network.byId.get(state.module)?.stack === stack);
    this.replaceChildren(this.wires, ...Object.values(this.sides));
    this.watch();
    this.show(state);
    this.whenResized.disconnect();
    for (const each of [this, ...Object.values(this.sides)]) this.whenResized.observe(each); // tells when it is laid out
  }

  stack(name) {
    const { network } = this, open = network.openLayers(name, this.state.unfolded);
    const boxes = network.boxes.filter((box) => box.stack === name), children = [];
    let layer = null;
    for (const box of boxes) {
      if (box.layer === null) children.push(this.box(box));
      else if (!open.has(box.layer)) {
        if (box.layer !== layer?.n) children.push(this.folded(name, box.layer));
        layer = { n: box.layer };
      } else {
        if (box.layer !== layer?.n) children.push((layer = { n: box.layer, element: this.layer(name, box.layer) })
          .element);
        layer.element.append(this.box(box));
      }
    }
    const lanes = network.lanes(name).length;
    return h("section", { class: `stack ${this.naming(name)}`, "data-stack": name, "aria-label": t(`stack.${name}`), style: { "--n": lanes },
      onpointermove: (event) => this.pointed(event, name), onpointerleave: () => this.tellFollowed(null) },
    h("div", { class: "lane", "aria-hidden": "true" }), children,
    h("h3", {}, t(`stack.${name}`), " ", h("small", {}, t("home.layers", { count: network.answer.stacks[name].length }))));
  }

  layer(stack, n) {
    const canFold = !this.network.openLayers(stack, "").has(n);
    const title = t("layer.n", { n });
    return h("div", { class: "layer", role: "group", "aria-label": `${t(`stack.${stack}`)} · ${title}` },
      h("span", { class: "layer-name" }, canFold ? h("button", { type: "button", class: "link",
        id: `fold-${stack}.${n}`, "aria-expanded": "true", onclick: () => this.toggleLayer(stack, n) }, title) : title));
  }

  /** A folded layer is one row: the stream behind it. */
  folded(stack, n) {
    const boxes = this.network.boxes.filter((box) => box.stack === stack && box.layer === n), last = boxes.at(-1);
    return h("div", { class: "box row folded", "data-box": `${stack}.${n}`, "data-part": "folded" },
      this.strip({ ...last, norms: { output: last.norms.normed ?? last.norms.sum } }, 12),
      h("button", { type: "button", class: "link box-name", id: `fold-${stack}.${n}`, "aria-expanded": "false",
        onclick: () => this.toggleLayer(stack, n) }, t("layer.n", { n })));
  }

  toggleLayer(stack, n) {
    const all = this.state.unfolded.split(",").filter(Boolean), name = `${stack}.${n}`;
    const layers = all.includes("all") ? Object.entries(this.network.answer.layers).flatMap(([each, numbers]) =>
      numbers.map((number) => `${each}.${number}`)) : all;
    update({ unfolded: (layers.includes(name) ? layers.filter((each) => each !== name) : [...layers, name]).join(",") },
      { quiet: true });
  }

  /** Another step, mode or followed token: what is drawn stays, its marks move. */
  show(given) {
    this.data = { ...this.data, state: given };
    const { network, state } = this, at = (this.at = network.lane(state));
    const decoder = this.sides.decoder;
    this.classList.toggle("generating", !state.teacher);
    if (decoder) decoder.style.setProperty("--seen", state.teacher ? network.first + network.length : at + 1);
    for (const chip of this.querySelectorAll("[data-stack=decoder] .chip")) {
      const lane = Number(chip.dataset.lane), predicted = chip.parentElement.dataset.kind === "predicted";
      chip.classList.toggle("future", !state.teacher && lane > at);
      chip.classList.toggle("now", lane === at);
      if (predicted) chip.setAttribute("aria-pressed", String(lane === at));
    }
    for (const { element, box, shape } of this.told) if (shape) element.textContent = shapeOf(network, box, state);
    this.drawDistribution();
    this.follow(this.hovered ?? network.followed(state));
    if (this.isConnected) this.paint();
  }

  drawDistribution() {
    const { network, state } = this, step = network.answer.steps[network.step(state)];
    if (!this.distribution || !step) return;
    const rows = step.top.some((each) => each.id === step.id) ? step.top : [...step.top.slice(0, -1), step];
    this.distribution.replaceChildren(...rows.map((each) => h("li", { class: each.id === step.id ? "chosen" : "",
      "data-token": each.id }, h("span", { class: "name" }, visible(each.piece)), track(each.probability),
    h("span", { class: "number" }, percent(each.probability)))));
  }

  /** Marks a token in all layers: {stack, lane}; without one, the token of this step. */
  follow(place) {
    this.followed = place;
    const { network } = this, lanes = { encoder: null, decoder: this.at };
    if (place) lanes[place.stack] = place.lane;
    for (const [stack, element] of Object.entries(this.sides)) {
      const lane = lanes[stack];
      element.classList.toggle("following", lane !== null);
      element.classList.toggle("held", place?.stack === stack);
      // Not on the stack: all of its parts would have to be styled again.
      if (lane !== null) for (const part of this.marked[stack]) part.style.setProperty("--at", lane);
    }
    for (const chip of this.querySelectorAll(".chip.followed")) {
      chip.classList.remove("followed");
      if (chip.parentElement.dataset.kind === "read") chip.setAttribute("aria-pressed", "false");
    }
    if (place) for (const chip of this.sides[place.stack].querySelectorAll(`.chip[data-lane="${place.lane}"]`)) {
      chip.classList.add("followed");
      if (chip.parentElement.dataset.kind === "read") chip.setAttribute("aria-pressed", String(this.state.follow
        === `${place.stack}.${place.lane}`));
    }
    for (const { element, box, shape } of this.told) {
      const lane = lanes[box.stack];
      if (shape || !box.maps) continue;
      element.replaceChildren(...(lane === null ? [] : [h("span", {}, `${visible(network.lanes(box.stack)[lane])} →`),
        ...network.strongest(box, lane).map(([piece, weight]) => h("b", {}, visible(piece), " ",
          h("small", {}, percent(weight))))]));
    }
    this.paintMemory(lanes.decoder);
  }

  tellFollowed(place) {
    this.hovered = place;
    this.follow(place ?? this.network.followed(this.state));
    this.dispatchEvent(new CustomEvent("follow", { detail: this.followed }));
  }

  pointed(event, stack) {
    const strip = event.target.closest(".strip, .chips"), head = event.target.closest(".head");
    const count = this.network.lanes(stack).length;
    if (!strip && !head) return;
    const { left, top, width, height } = (strip ?? head.firstElementChild).getBoundingClientRect();
    const share = strip ? (event.clientX - left) / width : (event.clientY - top) / height;
    const lane = Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    if (this.hovered?.stack !== stack || this.hovered.lane !== lane) this.tellFollowed({ stack, lane });
  }

  /** Lights the box that computes now; null puts it out. Returns its element. */
  light(id) {
    for (const lit of this.querySelectorAll(".lit")) lit.classList.remove("lit");
    const found = id && (this.querySelector(`[data-box="${CSS.escape(id)}"]`) ?? this.querySelector(
      `[data-box="${CSS.escape(id.split(".").slice(0, 2).join("."))}"]`));
    found?.classList.add("lit");
    this.wires.classList.toggle("on", Boolean(id === "memory" || id?.endsWith(".cross")));
    return found ?? null;
  }

  /** How tokens are named in the lanes of a stack. At first its width is a guess: a wrong one costs a second layout. */
  naming(stack) {
    const width = this.widths?.[stack] ?? 700 / this.network.stacks.length, lane = width / this.network.lanes(stack).length;
    return lane < UPRIGHT ? "nameless" : lane < this.widestName(stack) ? "upright" : "";
  }

  /** The lane that every token of a stack fits in. Everybody knows <s> and </s>, so they may be cut. */
  widestName(stack) {
    const { pieces } = this.network, all = stack === "encoder" ? pieces.source : [...pieces.read, ...pieces.predicted];
    const names = all.filter((each) => !["<s>", "</s>"].includes(each));
    return (this.widest[stack] ??= BESIDE + Math.max(...names.map((each) => textWidth(visible(each), LETTERS, 600)), 16));
  }

  /** What depends on the layout, which is known now. */
  fit() {
    if (!this.clientWidth) return;
    this.measure();
    this.wire();
    for (const [stack, element] of Object.entries(this.sides)) for (const each of ["upright", "nameless"]) element
      .classList.toggle(each, each === this.naming(stack));
    this.paintNear();
    this.paintMemory(this.followed?.stack === "decoder" ? this.followed.lane : this.at);
    this.dispatchEvent(new CustomEvent("fit"));
  }
}

customElements.define("network-figure", NetworkFigure);
