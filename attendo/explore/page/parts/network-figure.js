// The whole network as in the paper: encoder on the left, decoder on the right, with the numbers of one forward pass.

import { palette, pixels } from "../colour.js";
import { h, nextFrame, number, percent, svg, track, visible } from "../dom.js";
import { factorOf, isOff } from "../edits.js";
import { t } from "../i18n.js";
import { update } from "../store.js";
import "./module-panel.js";

const HEADS = 8; // heads that are drawn before the others are asked for
const MAPS = 48; // maps that are drawn between two frames
const BARS = 26; // pixels: the height of the bars of a stream
const NAMED = 24, UPRIGHT = 13; // pixels of a lane in which a token can be named, and named upright

/**
 * `data`: {network, state}. `state` has `step`, `teacher`, `module`, `follow`, `unfolded`, `all_heads`, `head`.
 * Fires `follow` {stack, lane} or null when a token is pointed at.
 */
export class NetworkFigure extends HTMLElement {
  connectedCallback() {
    this.classList.add("network");
    this.render();
    this.whenResized = new ResizeObserver(() => this.fit());
    this.whenResized.observe(this);
  }

  disconnectedCallback() {
    this.whenResized?.disconnect();
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
    this.wires = svg("svg", { class: "wires", "aria-hidden": "true" });
    this.sides = Object.fromEntries(network.stacks.map((stack) => [stack, this.stack(stack)]));
    this.marked = Object.fromEntries(Object.entries(this.sides).map(([stack, element]) => [stack,
      element.querySelectorAll(":scope > .lane, .heads")]));
    this.classList.toggle("single", network.stacks.length === 1);
    for (const stack of network.stacks) this.classList.toggle(`wide-${stack}`, network.byId.get(state.module)?.stack === stack);
    this.replaceChildren(this.wires, ...Object.values(this.sides));
    this.show(state);
    if (this.whenResized) this.wire();
    this.paintMaps(this.maps);
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
    return h("section", { class: "stack", "data-stack": name, "aria-label": t(`stack.${name}`), style: { "--n": lanes },
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

  box(box) {
    const make = { tokens: () => this.tokens(box), embedding: () => (box.norms ? null : this.bar(box)),
      feed_forward: () => this.bar(box), linear: () => this.bar(box), attention: () => this.attention(box),
      recurrence: () => this.attention(box), memory: () => this.memory(box), softmax: () => this.softmax(box) }[box.part];
    const element = make?.() ?? this.row(box);
    element.dataset.box = box.id;
    element.dataset.part = box.part;
    if (box.site && isOff(this.state, box.site)) element.classList.add("off");
    if (this.state.module === box.id) element.append(h("module-panel", { data: { network: this.network, box } }));
    return element;
  }

  name(box, extra = null) {
    const title = titleOf(box);
    if (!box.operations.length) return h("span", { class: "box-name" }, title, extra);
    const open = this.state.module === box.id;
    return h("button", { type: "button", class: "box-name", id: `box-${box.id}`, "aria-expanded": String(open),
      "aria-label": labelOf(box), onclick: () => update({ module: open ? "" : box.id, cell: "" }, { quiet: true }) },
    h("span", {}, title), extra);
  }

  /** A thin box: the bars of its tokens, and its name. */
  row(box) {
    return h("div", { class: "box row" }, box.norms ? this.strip(box) : h("span", { class: "strip plain" }),
      this.name(box, this.shape(box)));
  }

  /** A box that computes each token by itself and changes no stream. */
  bar(box) {
    return h("div", { class: "box wide thin" }, h("div", { class: "box-head" }, this.name(box, this.shape(box))));
  }

  attention(box) {
    return h("div", { class: "box wide" }, h("div", { class: "box-head" }, this.name(box, this.shape(box)),
      this.looking(box)), this.heads(box));
  }

  /** What the followed token looks at. */
  looking(box) {
    const element = h("span", { class: "looking" });
    this.told.push({ element, box });
    return element;
  }

  heads(box) {
    const { network, state } = this, count = network.answer.heads, shown = state.all_heads ? count
      : Math.min(count, HEADS);
    const [, rows] = box.maps.shape, byRow = box.stack === "decoder" ? " target" : "";
    return h("div", { class: `heads${byRow}`, style: { "--rows": rows,
      "--size": shown <= 4 ? "60px" : "44px" } },
      Array.from({ length: shown }, (_, n) => this.head(box, n)),
      shown < count ? h("button", { type: "button", class: "link more", onclick: () => update({ all_heads: true },
        { quiet: true }) }, t("home.moreHeads", { count: count - shown })) : null);
  }

  head(box, n) {
    const { state } = this, canvas = h("canvas", { "aria-hidden": "true" }), factor = factorOf(state, box.site, n);
    this.maps.push({ canvas, box, head: n });
    const label = [`${labelOf(box)} · ${t("head.n", { n })}`, factor === 1 ? "" : `× ${factor}`].filter(Boolean)
      .join(" ");
    return h("button", { type: "button", class: `head${factor === 0 ? " off" : ""}`, title: label, "aria-label": label,
      id: `head-${box.site}.${n}`, "aria-pressed": String(state.module === box.id && state.head === n),
      onclick: () => update({ module: box.id, head: n, cell: "" }, { quiet: true }) }, canvas, h("i", {}));
  }

  /** The memory: what the tokens of the source have become, and how much the current token looks at each of them. */
  memory(box) {
    const { norms } = this.network.boxes.filter((each) => each.stack === "encoder" && each.norms).at(-1);
    return h("div", { class: "box row" }, this.strip({ ...box, norms: { output: norms.normed ?? norms.output ?? norms.sum } },
      BARS, true), h("span", { class: "box-name" }, h("span", {}, t("home.part.memory")), h("small", {},
      `[${this.network.pieces.source.length}, ${this.network.answer.d_model}]`)));
  }

  /** A row of tokens; each of them can be followed. */
  tokens(box) {
    const { network } = this, { stack } = box, pieces = network.lanes(stack);
    return h("div", { class: "box row tokens-row" }, this.chips(stack, pieces, t(stack === "encoder" ? "side.source"
      : "home.read")), this.name(box, h("small", { class: "shape" }, `[${pieces.length}]`)));
  }

  chips(stack, pieces, label, kind = "read") {
    return h("div", { class: "chips", role: "group", "aria-label": label, "data-kind": kind, onkeydown: walk },
      pieces.map((piece, n) => h("button", { type: "button", class: "chip", id: `${kind}-${stack}-${n}`,
        "data-lane": n, tabindex: n ? -1 : 0, title: visible(piece), "aria-pressed": "false",
        onfocus: () => this.tellFollowed({ stack, lane: n }), onblur: () => this.tellFollowed(null),
        onclick: () => this.chosen(stack, n, kind) }, h("span", {}, visible(piece)))));
  }

  /** A click holds a token; a predicted one is the step to look at as well. */
  chosen(stack, lane, kind) {
    const follow = `${stack}.${lane}`;
    if (kind === "predicted") update({ step: lane }, { quiet: true });
    else update({ follow: this.state.follow === follow ? "" : follow }, { quiet: true });
  }

  softmax(box) {
    this.distribution = h("ol", { class: "bars distribution" });
    return h("div", { class: "box wide" }, h("div", { class: "box-head" }, this.name(box, this.shape(box))),
      this.distribution, h("div", { class: "row tokens-row predicted" }, this.chips("decoder",
        this.network.pieces.predicted, t("home.predicted"), "predicted"), h("span", { class: "box-name" },
        h("span", {}, t("home.predicted")))));
  }

  strip(box, height = BARS, attended = false) {
    const canvas = h("canvas", { class: "strip", role: "img", "aria-label": t("home.strip", { name: labelOf(box) }),
      style: { height: `${height}px` } });
    this.strips.push({ canvas, box, height, attended });
    return canvas;
  }

  shape(box) {
    const element = h("small", { class: "shape" });
    this.told.push({ element, box, shape: true });
    return element;
  }

  /** Another step, mode or followed token: what is drawn stays, its marks move. */
  show(given) {
    this.data = { ...this.data, state: given };
    const { network, state } = this, step = (this.at = network.step(state));
    const decoder = this.sides.decoder;
    this.classList.toggle("generating", !state.teacher);
    if (decoder) decoder.style.setProperty("--seen", state.teacher ? network.length : step + 1);
    for (const chip of this.querySelectorAll("[data-stack=decoder] .chip")) {
      const lane = Number(chip.dataset.lane), predicted = chip.parentElement.dataset.kind === "predicted";
      chip.classList.toggle("future", !state.teacher && lane > step);
      chip.classList.toggle("now", lane === step);
      if (predicted) chip.setAttribute("aria-pressed", String(lane === step));
    }
    for (const { element, box, shape } of this.told) if (shape) element.textContent = shapeOf(network, box, state);
    this.drawDistribution();
    this.follow(this.hovered ?? network.followed(state));
    if (this.isConnected) this.paint();
  }

  drawDistribution() {
    const { network, at } = this, step = network.answer.steps[at];
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

  fit() {
    const width = this.clientWidth;
    if (!width) return;
    for (const [stack, element] of Object.entries(this.sides)) {
      const wide = (element.querySelector(".strip")?.clientWidth ?? 0) / this.network.lanes(stack).length;
      element.classList.toggle("upright", wide < NAMED && wide >= UPRIGHT);
      element.classList.toggle("nameless", wide < UPRIGHT);
    }
    this.paint();
    this.wire();
  }

  paint() {
    if (!this.clientWidth) return;
    const { network, state, at } = this, colours = palette(), largest = {};
    this.widths = {}; // read once: after each canvas the browser would have to lay out the page again
    for (const stack of network.stacks) {
      largest[stack] = network.largest(stack);
      this.widths[stack] = this.sides[stack].querySelector(".strip")?.clientWidth ?? 0;
    }
    for (const strip of this.strips) {
      const { canvas, box: { norms, stack }, height } = strip, now = state.teacher ? null : at;
      const width = this.widths[stack], context = prepared(canvas, width, height), count = network.lanes(stack).length;
      if (!context) continue;
      const lane = width / count, wide = Math.max(1, Math.min(lane * 0.62, 30)), room = height - 2;
      for (let n = 0; n < count; n++) {
        const left = n * lane + (lane - wide) / 2, bar = (from, to, colour) => { context.fillStyle = colour;
          context.fillRect(left, height - 1 - to * room, wide, Math.max(1, (to - from) * room)); };
        const old = now !== null && (stack === "encoder" ? now > 0 : n < now);
        context.globalAlpha = stack === "decoder" && now !== null && n > now ? 0.16 : old ? 0.5 : 1;
        const share = (row) => Math.min(1, (row?.[n] ?? 0) / largest[stack]);
        if (norms.sum) {
          // The bar is as long as the sum; its upper part is the share of what the sub-layer adds.
          const sum = share(norms.sum), part = norms.output[n] / Math.max(norms.output[n] + norms.into[n], 1e-9);
          bar(0, sum * (1 - part), colours.weights[2]);
          bar(sum * (1 - part), sum, colours.other);
        } else bar(0, share(norms.output ?? norms.normed), colours.weights[norms.normed ? 2 : 3]);
        if (norms.sum && norms.normed) bar(share(norms.normed) - 1.6 / room, share(norms.normed), colours.ink);
      }
      context.globalAlpha = 1;
    }
    this.paintMemory(this.followed?.stack === "decoder" ? this.followed.lane : at);
  }

  /** The maps of the heads, some at a time: there may be hundreds. Each is as dark as its largest weight allows. */
  async paintMaps(maps) {
    for (let n = 0; n < maps.length; n++) {
      if (n && n % MAPS === 0) await nextFrame();
      if (maps !== this.maps) return; // drawn again meanwhile
      const { canvas, box, head } = maps[n], { values, rows, columns } = this.network.map(box, head);
      const limit = values.reduce((most, each) => Math.max(most, each), 1e-6);
      canvas.width = columns;
      canvas.height = rows;
      canvas.getContext("2d").putImageData(new ImageData(pixels(values, "weights", limit), columns, rows), 0, 0);
    }
  }

  /** Over the memory: how much a token of the target looks at each source token, as the mean of all heads. */
  paintMemory(row) {
    const strip = this.strips.find(({ attended }) => attended), weights = strip && this.network.memoryWeights(row ?? this.at);
    const width = this.widths?.encoder;
    const context = weights && prepared(strip.canvas, width, strip.height);
    if (!context) return;
    const colours = palette(), { height } = strip, lane = width / weights.length;
    const wide = Math.max(1, Math.min(lane * 0.62, 30));
    weights.forEach((weight, n) => {
      context.fillStyle = colours.faint;
      context.fillRect(n * lane + (lane - wide) / 2, 1, wide, height - 2);
      context.fillStyle = colours.accent;
      context.fillRect(n * lane + (lane - wide) / 2, height - 1 - weight * (height - 2), wide, weight * (height - 2));
    });
  }

  /** Lines from the memory to every cross-attention that is drawn. */
  wire() {
    const from = this.querySelector('[data-part="memory"]'), area = this.getBoundingClientRect();
    const targets = [...this.querySelectorAll('[data-box$=".cross"]')];
    this.wires.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
    if (!from || !targets.length) return this.wires.replaceChildren();
    const box = from.getBoundingClientRect(), side = this.sides.decoder.getBoundingClientRect();
    const beside = side.left > box.right;
    if (!beside) return this.wires.replaceChildren();
    const x = box.right - area.left, y = box.top + box.height / 2 - area.top, middle = (x + side.left - area.left) / 2;
    const paths = targets.map((target) => {
      const found = target.getBoundingClientRect(), end = found.left - area.left, at = found.top - area.top + 22;
      const turn = Math.min(10, Math.abs(at - y) / 2), down = Math.sign(at - y) || 1;
      return svg("path", { d: `M${x} ${y}H${middle - turn}Q${middle} ${y} ${middle} ${y + down * turn}V${at
        - down * turn}Q${middle} ${at} ${middle + turn} ${at}H${end - 5}` });
    });
    const heads = targets.map((target) => {
      const found = target.getBoundingClientRect(), end = found.left - area.left, at = found.top - area.top + 22;
      return svg("path", { class: "tip", d: `M${end} ${at}l-7 -4v8z` });
    });
    this.wires.replaceChildren(...paths, ...heads);
  }
}

/** A canvas as sharp as the screen, or null where it has no room. */
function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (!width) return null;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** The name of a box, as in the figure of the paper. */
export function titleOf({ part, site, kind, stack, causal }) {
  if (part === "attention") return t(site.endsWith(".cross") ? "home.part.cross" : stack === "encoder" || causal === false
    ? "home.part.self" : "home.part.masked");
  if (kind && ["feed_forward", "recurrence"].includes(part)) return t(`home.part.${part}`);
  return t(`home.part.${part}`);
}

export const labelOf = (box) => [t(`stack.${box.stack}`), box.layer === null ? "" : t("layer.n", { n: box.layer }),
  titleOf(box)].filter(Boolean).join(" · ");

/** Shapes at an arrow. While generating, the decoder reads one token: the keys and values of the others are cached. */
export function shapeOf(network, box, { teacher, step }) {
  const { answer } = network, width = answer.d_model, rows = network.lanes(box.stack).length;
  const count = box.stack === "encoder" || teacher ? rows : 1;
  const keys = box.stack === "encoder" || box.site?.endsWith(".cross") ? network.pieces.source.length
    : teacher ? rows : network.step({ step }) + 1;
  if (box.part === "attention") {
    const [heads, , d] = network.formulas.get(`${box.site}.queries`).shape;
    return `Q [${heads}, ${count}, ${d}] · K, V [${heads}, ${keys}, ${d}]`;
  }
  if (box.part === "feed_forward") {
    const inner = network.formulas.get(`${box.site}.bent`)?.shape[1];
    return inner ? `${width} → ${inner} → ${width}` : `[${count}, ${width}]`;
  }
  if (["linear", "softmax"].includes(box.part)) return `[${count}, ${answer.vocabulary}]`;
  return `[${count}, ${width}]`;
}

/** The arrow keys move along a row of tokens. */
function walk(event) {
  const all = [...event.currentTarget.querySelectorAll("button")], at = all.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (at < 0 || to === undefined || !all[to]) return;
  event.preventDefault();
  all[at].tabIndex = -1;
  all[to].tabIndex = 0;
  all[to].focus();
}

/** Norms of a followed token behind each box of its stack, for a reader of the screen and for the caption. */
export function normsOf(network, { stack, lane }) {
  return network.boxes.filter((box) => box.stack === stack && box.norms).map((box) => [labelOf(box),
    number((box.norms.normed ?? box.norms.sum ?? box.norms.output)[lane], 1)]);
}

customElements.define("network-figure", NetworkFigure);
