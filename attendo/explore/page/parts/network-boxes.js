// The boxes of the network: tokens, attention with its heads, feed-forward, norms, memory and softmax.

import { h, visible } from "../dom.js";
import { factorOf, isOff } from "../edits.js";
import { t } from "../i18n.js";
import { update } from "../store.js";
import "./module-panel.js";
import { NetworkCanvases } from "./network-canvases.js";
import { labelOf, titleOf } from "./network-labels.js";

const HEADS = 8; // heads that are drawn before the others are asked for
const BARS = 26; // pixels: the height of the bars of a stream

/** Each method returns the element of a box. What changes from step to step is noted in `strips`, `told` and `maps`. */
export class NetworkBoxes extends NetworkCanvases {
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
    const first = kind === "predicted" ? this.network.first : 0;
    return h("div", { class: "chips", role: "group", "aria-label": label, "data-kind": kind, onkeydown: walk },
      pieces.map((piece, n) => h("button", { type: "button",
        class: [...visible(piece)].length === 1 ? "chip letter" : "chip", id: `${kind}-${stack}-${n}`,
        "data-lane": first + n, tabindex: n ? -1 : 0, title: visible(piece), "aria-pressed": "false",
        onfocus: () => this.tellFollowed({ stack, lane: first + n }), onblur: () => this.tellFollowed(null),
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
