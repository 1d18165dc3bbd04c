// Heads switched off or turned down, live: the new output, and what the old one has lost.

import { ask, offline, stream, wasCancelled } from "../api.js";
import { colourOf, palette } from "../colour.js";
import { h, number, signed, visible } from "../dom.js";
import { t } from "../i18n.js";
import { button } from "../parts/controls.js";
import "../parts/map-grid.js";
import { ANSWER, ofAblation, ofRanking, ofTrace } from "../requests.js";
import { stacked, tableScene } from "../scene.js";
import { current, headsAs, headsOf, update } from "../store.js";
import { SITES, siteName, traceOf } from "../tensors.js";
import { complaint, View } from "../view.js";

export class Ablation extends View {
  static name = "ablation";
  static asks = ANSWER;

  async load(state, signal) {
    const [ablation, answer] = await Promise.all([ask("/ablate", ofAblation(state), signal),
      ask("/trace", ofTrace({ ...state, heads: "" }), signal)]);
    return { ablation, trace: await traceOf(answer) };
  }

  follow(changed) {
    if ([...ANSWER].some((name) => name !== "heads" && changed.has(name))) this.forget();
    super.follow(changed);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.ranker?.abort();
  }

  fixed(state) {
    return state.heads ? [h("div", { class: "row controls" }, button(t("reset"), () => update({ heads: "" }),
      { id: "reset" }))] : [];
  }

  content({ ablation, trace }, state) {
    this.results = h("div", { class: "columns" }, this.outputs(ablation), this.tokens(ablation));
    this.ranked = h("div", { class: "ranking" });
    this.grids = SITES.map((site) => this.gridOf(site, trace));
    this.showRanking();
    return [this.results, this.controls(state),
      h("div", { class: "sites" }, this.grids.map(({ site, grid }) => h("section", { class: "card" },
        h("h3", {}, t(`site.${site}`)), grid))), this.ranked];
  }

  /** The maps are those of the whole model: only marks and results change with the heads. */
  draw() {
    if (this.grids?.[0].grid.isConnected && !this.failed && this.drawnFor === this.data.trace && !this.whole) {
      const state = current();
      const results = h("div", { class: "columns" }, this.outputs(this.data.ablation), this.tokens(this.data.ablation));
      this.results.replaceWith(results);
      this.results = results;
      const old = this.querySelector(":scope > .controls"), focus = document.activeElement?.id;
      old.replaceWith(this.controls(state));
      if (focus) document.getElementById(focus)?.focus();
      for (const { grid } of this.grids) if (grid.layout) grid.showStates();
      return;
    }
    this.drawnFor = this.data?.trace;
    super.draw();
  }

  patch() {
    this.whole = true;
    this.draw();
    this.whole = false;
  }

  controls(state) {
    const list = Object.entries(headsOf(state.heads)).flatMap(([site, heads]) => Object.entries(heads)
      .map(([head, scale]) => ({ site, head, scale })));
    return h("div", { class: "controls ablation-controls" },
      h("div", { class: "row" }, this.rankButton(),
        button(t("reset"), () => update({ heads: "" }), { id: "reset", disabled: !list.length })),
      list.length ? h("ul", { class: "scales" }, list.map((each) => h("li", {}, scale(each))))
        : h("p", { class: "note" }, t("ablation.hint")));
  }

  /** A saved page has no server that could measure. */
  rankButton() {
    if (offline) return null;
    return this.ranker ? button(t("ablation.stop"), () => this.ranker.abort(), { id: "rank" })
      : button(t("ablation.rank"), () => this.rank(), { id: "rank" });
  }

  gridOf(site, trace) {
    const [layers, heads, rows, columns] = trace.shape(site), name = (layer) =>
      siteName(site, trace.layers(site)[layer]);
    const grid = h("map-grid", { data: {
      id: `grid-${site}`, rows: layers, columns: heads, largest: 104, hint: "\u00a0",
      label: t("ablation.label", { site: t(`site.${site}`) }),
      rowName: (n) => `L${trace.layers(site)[n]}`, columnName: (n) => `H${n}`,
      map: (layer, head) => ({ values: trace.head(site, layer, head), rows, columns }),
      badge: (layer, head) => this.badge(name(layer), head),
      state: (layer, head) => {
        const scaled = headsOf(current().heads)[name(layer)]?.[head];
        return { off: scaled === undefined ? "" : `×${scaled}` };
      },
      saying: (layer, head) => {
        const lost = this.deltas?.get(`${name(layer)}.${head}`);
        return `${name(layer)} · ${t("head.n", { n: head })}${lost === undefined ? "" : ` · Δ log P ${signed(lost)}`}`;
      },
    }, onpick: ({ detail }) => flip(name(detail.row), detail.column) });
    return { site, grid };
  }

  badge(site, head) {
    const lost = this.deltas?.get(`${site}.${head}`);
    if (lost === undefined) return { content: "", share: 0 };
    const most = Math.max(...[...this.deltas.values()].map(Math.abs), 1e-9);
    const fill = lost < 0 ? palette().other : palette().accent;
    return { content: signed(lost, 2), share: Math.abs(lost) / most, fill, frame: colourOf(lost, "signs", most) };
  }

  outputs({ before, after, delta }) {
    const same = before.text === after.text;
    return h("section", { class: "card" },
      h("h3", {}, t("ablation.before")), h("p", { class: "output" }, before.text),
      h("h3", {}, t("ablation.after")), h("p", { class: `output${same ? "" : " changed"}` }, after.text || "∅",
        same ? h("small", {}, ` ${t("ablation.same")}`) : "",
        after.cut ? h("small", { class: "cut" }, ` ${t("translate.cut")}`) : ""),
      h("dl", { class: "facts stacked" },
        h("dt", {}, t("ablation.old")), h("dd", { "data-number": "before" }, number(before.log_probability, 4)),
        h("dt", {}, t("ablation.new")), h("dd", { "data-number": "after" }, number(after.log_probability_of_old, 4)),
        h("dt", {}, t("ablation.delta")), h("dd", { "data-number": "delta" }, signed(delta, 4))));
  }

  tokens({ before, after }) {
    const changes = before.tokens.map((token, n) => ({ piece: token.piece, before: token.log_probability,
      delta: (after.tokens[n]?.log_probability ?? token.log_probability) - token.log_probability }));
    const most = Math.max(...changes.map((each) => Math.abs(each.delta)), 0.5);
    return h("section", { class: "card" }, h("h3", {}, t("ablation.tokens")),
      h("table", { class: "diverging" }, h("thead", { class: "unseen" },
        h("tr", {}, ["piece", "bar", "delta"].map((name) => h("th", { scope: "col" }, t(`ablation.${name}`))))),
        h("tbody", {}, changes.map(({ piece, delta, before: old }) => h("tr", { title: `log p = ${number(old, 3)}` },
          h("th", { scope: "row" }, visible(piece)),
          h("td", {}, h("span", { class: "zero" }, h("i", { class: delta < 0 ? "less" : "more",
            style: { width: `${(Math.abs(delta) / most) * 50}%` } }))),
          h("td", { class: "number" }, signed(delta, 3)))))));
  }

  async rank() {
    this.forget();
    this.deltas = new Map();
    const ranker = (this.ranker = new AbortController());
    this.draw();
    try {
      for await (const { name, data } of stream("/rank", ofRanking(current()), ranker.signal)) {
        if (name === "head") this.deltas.set(`${data.site}.${data.head}`, data.delta);
        this.recolour();
      }
    } catch (error) {
      if (!wasCancelled(error) && this.ranker === ranker) this.rankingFailed = error;
    } finally {
      if (this.ranker === ranker) this.ranker = null;
      if (this.isConnected) this.draw();
      this.recolour(true);
    }
  }

  /** At most a few times a second: heads come faster than they can be read. */
  recolour(now = false) {
    if (!now && performance.now() - (this.coloured ?? 0) < 250) return;
    this.coloured = performance.now();
    for (const { grid } of this.grids ?? []) if (grid.isConnected) grid.repaint();
    this.showRanking();
  }

  forget() {
    this.ranker?.abort();
    this.ranker = null;
    this.deltas = undefined;
    this.rankingFailed = null;
  }

  showRanking() {
    if (this.rankingFailed) return this.ranked.replaceChildren(complaint(this.rankingFailed, () => this.rank()));
    if (!this.deltas) return this.ranked.replaceChildren();
    const list = [...this.deltas].sort((a, b) => a[1] - b[1]);
    this.ranked.replaceChildren(h("section", { class: "card" }, h("h3", {}, t("ablation.ranking")),
      h("p", { class: "note", role: "status" }, t("ablation.progress", { count: list.length })),
      h("ol", { class: "ranked" }, list.slice(0, 12).map(([name, delta]) =>
        h("li", {}, button(name, () => flip(...halves(name)), { class: "link" }),
        h("span", { class: "number" }, signed(delta, 3)))))));
  }

  picture({ ablation }) {
    const rows = ablation.before.tokens.map((token, n) => [visible(token.piece), number(token.log_probability),
      number(ablation.after.tokens[n]?.log_probability),
      signed((ablation.after.tokens[n]?.log_probability ?? token.log_probability) - token.log_probability)]);
    return stacked([
      { title: `${ablation.before.text} → ${ablation.after.text} (Δ ${signed(ablation.delta)})`,
        scene: tableScene([t("ablation.piece"), t("ablation.before"), t("ablation.after"), t("ablation.delta")],
        rows) },
      ...this.grids.map(({ site, grid }) => ({ title: t(`site.${site}`), scene: grid.picture() })),
    ]);
  }

  exported({ ablation }) {
    return { ...ablation, ranking: this.deltas ? Object.fromEntries(this.deltas) : null };
  }
}

const halves = (name) => [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];

function flip(site, head) {
  const heads = headsOf(current().heads);
  const now = heads[site]?.[head] ?? 1;
  set(site, head, now === 1 ? 0 : 1);
}

function set(site, head, scale) {
  const heads = headsOf(current().heads);
  (heads[site] ??= {})[head] = scale;
  update({ heads: headsAs(heads) });
}

function scale({ site, head, scale: value }) {
  const name = `${site}.${head}`;
  return [h("label", {}, h("span", {}, name), h("input", { id: `scale-${name}`, type: "range", min: 0, max: 1,
    step: 0.05, value: String(value), onchange: (event) => set(site, head, Number(event.target.value)),
    oninput: (event) => { event.target.nextSibling.textContent = `×${event.target.value}`; } }),
    h("output", {}, `×${value}`)),
    button("×", () => set(site, head, 1), { class: "link", "aria-label": `${t("ablation.restore")} ${name}` })];
}
