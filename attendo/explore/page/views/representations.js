// What the vectors hold: the prediction after every layer, similarity of tokens, feed-forward units, positions, embeddings.

import { ask } from "../api.js";
import { colourOf, inkOn, palette } from "../colour.js";
import { h, number, percent, svg, visible } from "../dom.js";
import { CHANGES } from "../edits.js";
import { t } from "../i18n.js";
import { choice, select } from "../parts/controls.js";
import "../parts/heat-map.js";
import { DECODER, ofEmbeddings, ofRepresentations } from "../requests.js";
import { framed, rect, stacked, tableScene, text } from "../scene.js";
import { current, update } from "../store.js";
import { arrayOf } from "../tensors.js";
import { View } from "../view.js";

const PARTS = ["lens", "similarity", "units", "positions", "embeddings"];
const OF_TABLES = ["positions", "embeddings"]; // parts that are about the weights, and not about one pass
const WIDTH = 640, HEIGHT = 460, MARGIN = 26;

export class Representations extends View {
  static name = "representations";
  static asks = ["model", "checkpoint", "text", "target", ...CHANGES, "rep", "rep_side", ...DECODER];
  static draws = ["rep_stack", "rep_layer"];

  async load(state, signal) {
    if (!OF_TABLES.includes(state.rep)) {
      const found = await ask("/representations", ofRepresentations(state), signal), stacks = {};
      for (const [stack, place] of Object.entries(found.similarity)) stacks[stack] = await arrayOf(found, place);
      return { found, stacks, part: state.rep };
    }
    const found = await ask("/embeddings", ofEmbeddings(state), signal), { values, similarity } = found.positions;
    return { found, part: state.rep, values: values && await arrayOf(found, values),
      similarity: similarity && await arrayOf(found, similarity) };
  }

  fixed(state) {
    return [choice("rep", t("rep.part"), state.rep, PARTS.map((part) => [part, t(`rep.${part}`)])),
      h("p", { class: "note" }, t(`rep.${state.rep}.explain`))];
  }

  content(data, state) {
    this.scenes = [];
    return [...this.fixed(state), ...this[data.part](data, state)];
  }

  /** One row a layer, one column a position; a cell has the most probable token there. */
  lens({ found }) {
    const { predicted } = found.target, last = found.lens.length - 1;
    this.saying = h("output", { class: "readout" }, t("rep.lens.hint"));
    const cell = (row, layer, at) => {
      const [best] = row.top, right = best.piece === predicted[at];
      return h("td", {}, h("button", { type: "button", class: `lens-cell${right ? " right" : ""}`,
        id: `lens-${layer}-${at}`, tabindex: layer === last && at === 0 ? "0" : "-1",
        style: { "background-color": colourOf(best.probability), color: inkOn(best.probability) },
        onfocus: () => this.tellLens(layer, at), onpointerenter: () => this.tellLens(layer, at) },
        h("span", {}, visible(best.piece)), h("small", {}, percent(best.probability))));
    };
    const rows = found.lens.map((row, layer) => [this.layerName(layer), ...row.map(({ top: [best] }) =>
      `${visible(best.piece)} ${percent(best.probability)}`)]);
    this.scenes.push({ title: t("rep.lens"), scene: tableScene([t("layer"), ...predicted.map(visible)], rows) });
    return [h("section", { class: "card" },
      h("div", { class: "table-scroll" }, h("table", { class: "lens", onkeydown: (event) => walk(event, last,
        predicted.length) }, h("caption", { class: "unseen" }, t("rep.lens")),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("rep.predicted")), predicted.map((piece) =>
          h("th", { scope: "col" }, visible(piece))))),
        h("tbody", {}, found.lens.map((row, layer) => h("tr", {}, h("th", { scope: "row" }, this.layerName(layer)),
          row.map((each, at) => cell(each, layer, at))))))),
      this.saying)];
  }

  tellLens(layer, at) {
    const { top, probability, rank } = this.data.found.lens[layer][at];
    this.saying.textContent = t("rep.lens.told", { layer: this.layerName(layer),
      token: visible(this.data.found.target.predicted[at]), probability: percent(probability), rank,
      list: top.map((each) => `${visible(each.piece)} ${percent(each.probability)}`).join(" · ") });
  }

  layerName(layer) {
    return layer ? t("rep.after", { n: layer - 1 }) : t("rep.input");
  }

  stackControls({ found }, state, layers) {
    const stacks = Object.keys(found.similarity), stack = stacks.includes(state.rep_stack) ? state.rep_stack : stacks[0];
    return { stack, control: h("div", { class: "row controls" },
      stacks.length > 1 ? choice("rep_stack", t("rep.stack"), stack, stacks.map((each) => [each, t(`stack.${each}`)]))
        : null, layers(stack)) };
  }

  similarity(data, state) {
    const layerOf = (stack) => {
      const count = data.found.similarity[stack].shape[0];
      return state.rep_layer < 0 ? count - 1 : Math.min(state.rep_layer, count - 1);
    };
    const { stack, control } = this.stackControls(data, state, (each) => this.layerSlider(layerOf(each),
      data.found.similarity[each].shape[0]));
    const [, size] = data.found.similarity[stack].shape, layer = layerOf(stack);
    const labels = stack === "encoder" ? data.found.source.pieces : data.found.target.read;
    const norms = data.found.norms[stack];
    return [control, h("div", { class: "pair" },
      this.map("rep.cosines", { values: data.stacks[stack].slice(layer * size * size, (layer + 1) * size * size),
        rows: size, columns: size, rowLabels: labels, columnLabels: labels, scale: "signs", limit: 1, largest: 46,
        saying: (said) => t("rep.cosine", said) }, this.layerName(layer)),
      this.map("rep.norms", { values: Float32Array.from(norms.flat()), rows: norms.length, columns: size,
        rowLabels: norms.map((_, n) => this.layerName(n)), columnLabels: labels, limit: Math.max(...norms.flat(), 1e-6),
        largest: 46, saying: (said) => t("rep.norm", said) }))];
  }

  layerSlider(layer, count) {
    const told = h("output", {}, this.layerName(layer));
    return h("label", { class: "field" }, h("span", {}, t("layer")), h("span", { class: "row" },
      h("input", { id: "rep_layer", type: "range", min: 0, max: count - 1, step: 1, value: String(layer),
        "aria-valuetext": this.layerName(layer), oninput: (event) => update({ rep_layer: Number(event.target.value) },
        { quiet: true }) }), told));
  }

  units(data, state) {
    const { units } = data.found;
    const layerOf = (stack) => Math.min(Math.max(state.rep_layer, 1), units[stack].length) - 1;
    const { stack, control } = this.stackControls(data, state, (each) => select("rep_layer", t("layer"),
      layerOf(each) + 1, units[each].map((_, n) => [n + 1, t("layer.n", { n })])));
    const labels = stack === "encoder" ? data.found.source.pieces : data.found.target.read;
    const rows = units[stack][layerOf(stack)], most = Math.max(...rows.flat().map((unit) => unit.strength), 1e-6);
    const promoted = ({ promotes }) => (promotes ? `→ ${promotes.map(visible).join(" ")}` : "");
    this.scenes.push({ title: t("rep.units"), scene: tableScene([t("rep.token"), t("rep.units")], rows.map((each, n) =>
      [visible(labels[n]), each.map((unit) => `${unit.unit}: ${number(unit.activation, 2)} ${promoted(unit)}`)
        .join("   ")])) });
    return [control, h("section", { class: "card" }, h("div", { class: "table-scroll", tabindex: "0", role: "region",
      "aria-label": t("rep.units") }, h("table", { class: "units" }, h("caption", { class: "unseen" }, t("rep.units")),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("rep.token")), rows[0].map((_, n) => h("th",
        { scope: "col" }, t("rep.nth", { n: n + 1 }))))),
      h("tbody", {}, rows.map((each, n) => h("tr", {}, h("th", { scope: "row" }, visible(labels[n])),
        each.map((unit) => h("td", {}, h("span", { class: "unit" }, h("b", {}, t("rep.unit", { n: unit.unit })),
          h("span", { class: "number" }, number(unit.activation, 2)), h("span", { class: "track", title:
            t("rep.strength", { value: number(unit.strength, 2) }) }, h("span", { class: "fill",
            style: { width: `${(unit.strength / most) * 100}%` } })), h("small", {}, promoted(unit)))))))))))];
  }

  side(state) {
    return h("div", { class: "row controls" }, choice("rep_side", t("rep.side"), state.rep_side,
      ["source", "target"].map((side) => [side, t(`rep.${side}`)])));
  }

  positions(data, state) {
    const { kind, values, similarity, distances } = data.found.positions;
    const told = h("p", { class: "note" }, t(`rep.positions.${kind}`));
    if (!values) return [this.side(state), h("section", { class: "card" }, told)];
    const [rows, columns] = values.shape, named = (count, from = 0) => Array.from({ length: count },
      (_, n) => String(n + from));
    const most = data.values.reduce((top, each) => Math.max(top, Math.abs(each)), 1e-6);
    const first = this.map(distances ? "rep.biases" : "rep.vectors", { values: data.values, rows, columns,
      rowLabels: distances ? named(rows).map((n) => t("head.n", { n })) : named(rows),
      columnLabels: named(columns, distances ? distances[0] : 0), scale: "signs", limit: most, wordless: true,
      saying: (said) => t(distances ? "rep.bias" : "rep.component", said) });
    return [this.side(state), told, h("div", { class: "pair" }, first, similarity ? this.map("rep.positionCosines",
      { values: data.similarity, rows, columns: rows, rowLabels: named(rows), columnLabels: named(rows), scale: "signs",
        limit: 1, wordless: true, saying: (said) => t("rep.positionCosine", said) }) : null)];
  }

  embeddings({ found: { tokens } }, state) {
    const share = (value) => percent(value), words = [...new Set(tokens.sentence)];
    const pieceOf = new Map(tokens.ids.map((id, n) => [id, tokens.pieces[n]]));
    const note = h("p", { class: "note" }, t("rep.axes", { first: share(tokens.shares[0]),
      second: share(tokens.shares[1]), count: tokens.ids.length, size: tokens.size }));
    return [this.side(state), h("div", { class: "map-and-list" },
      h("section", { class: "card" }, h("h3", {}, t("rep.map")), note, this.scatter(tokens, words)),
      h("section", { class: "card" }, h("h3", {}, t("rep.neighbours")), h("div", { class: "table-scroll tall",
        tabindex: "0", role: "region", "aria-label": t("rep.neighbours") }, h("table", { class: "wide" },
        h("thead", {}, h("tr", {}, ["token", "nearest"].map((name) => h("th", { scope: "col" }, t(`rep.${name}`))))),
        h("tbody", {}, words.map((id) => h("tr", {}, h("th", { scope: "row" }, visible(pieceOf.get(id))),
          h("td", { class: "wrapping" }, tokens.neighbours[id].map((each) => h("span", { class: "near-token" },
            visible(each.piece), " ", h("small", {}, number(each.cosine, 2))))))))))))];
  }

  scatter({ ids, pieces, points, neighbours }, words) {
    const xs = points.map(([x]) => x), ys = points.map(([, y]) => y), { accent, soft, ink, page } = palette();
    const scale = (values, from, to) => {
      const low = Math.min(...values), span = Math.max(...values) - low || 1;
      return (value) => from + ((value - low) / span) * (to - from);
    };
    const x = scale(xs, MARGIN, WIDTH - MARGIN * 3), y = scale(ys, HEIGHT - MARGIN, MARGIN);
    const mine = new Set(words), near = new Set(words.flatMap((id) => neighbours[id].slice(0, 3).map((each) => each.id)));
    const rank = (id) => (mine.has(id) ? 2 : near.has(id) ? 1 : 0), order = ids.map((id, n) => ({ id, n }))
      .sort((a, b) => rank(a.id) - rank(b.id));
    const dots = [], labels = [], items = [];
    for (const { id, n } of order) {
      const [left, top] = [x(xs[n]), y(ys[n])], level = rank(id), label = visible(pieces[n]);
      dots.push(svg("circle", { cx: left, cy: top, r: [1.6, 2.4, 4][level], fill: level ? accent : soft,
        "fill-opacity": [0.35, 0.7, 1][level] }, svg("title", {}, label)));
      items.push(rect(left - 2, top - 2, level + 2, level + 2, level ? accent : soft, { radius: 2,
        opacity: [0.35, 0.7, 1][level] }));
      if (!level) continue;
      labels.push(svg("text", { x: left + 6, y: top + 4, class: level === 2 ? "word" : "neighbour", fill: level === 2
        ? ink : soft, stroke: page }, label));
      items.push(text(left + 6, top + 4, label, { size: level === 2 ? 13 : 11, fill: level === 2 ? ink : soft }));
    }
    this.scenes.push({ title: t("rep.map"), scene: { width: WIDTH, height: HEIGHT, items } });
    return svg("svg", { class: "scatter", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("rep.map.label",
      { list: words.map((id) => visible(pieces[ids.indexOf(id)])).join(", ") }) }, dots, labels);
  }

  map(name, data, where = "") {
    const title = where ? `${t(name)} · ${where}` : t(name), map = h("heat-map", { data: { label: title, ...data } });
    this.scenes.push({ title, get scene() { return map.sceneFor(map.width || 560); } });
    return h("section", { class: "card" }, h("h3", {}, title), map);
  }

  picture() {
    return this.scenes.length > 1 ? stacked(this.scenes) : framed(stacked(this.scenes), 0);
  }

  exported({ found }) {
    return { part: current().rep, ...found };
  }
}

function walk(event, layers, positions) {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e6],
    End: [0, 1e6] }[event.key];
  const [, layer, at] = event.target.id?.match(/^lens-(\d+)-(\d+)$/) ?? [];
  if (!move || layer === undefined) return;
  event.preventDefault();
  const within = (value, most) => Math.min(Math.max(value, 0), most);
  const next = document.getElementById(`lens-${within(Number(layer) + move[0], layers)}-${
    within(Number(at) + move[1], positions - 1)}`);
  event.target.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}
