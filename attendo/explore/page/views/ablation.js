// The what-if bench: heads, layers, attention weights and padding changed by hand, and what the answer makes of it.

import { ask, offline, stream, wasCancelled } from "../api.js";
import { colourOf, palette } from "../colour.js";
import { h, number, percent, signed, visible } from "../dom.js";
import { CHANGES, dropEdits, editsOf, factorOf, isChanged, unchanged } from "../edits.js";
import { t } from "../i18n.js";
import { continuesText, editedSites } from "../models.js";
import { moduleTitle } from "../names.js";
import { flip, moduleSwitches, paddingControls, restore, scaleOf, weightEditor } from "../parts/changes.js";
import { button } from "../parts/controls.js";
import "../parts/map-grid.js";
import { ANSWER, ofAblation, ofRanking, ofTrace } from "../requests.js";
import { stacked, tableScene } from "../scene.js";
import { current, headsOf, update } from "../store.js";
import { siteName, traceOf } from "../tensors.js";
import { complaint, View } from "../view.js";

const LEAST = 0.1; // nats: the end of the colour scale of a ranking, however small its numbers are
const PLACE = ["edit_site", "edit_layer", "edit_head", "edit_row"];
const NOTHING = { heads: "", edits: "", beside: "" };

export class Ablation extends View {
  static name = "ablation";
  static asks = ANSWER;
  static draws = PLACE;

  async load(state, signal) {
    const whole = ask("/trace", ofTrace(unchanged(state)), signal);
    const [ablation, answer] = await Promise.all([ask("/ablate", ofAblation(state), signal), whole]);
    // The weights that are edited are those behind all other changes, for the answer of the whole model.
    const target = state.target || (answer.text && !answer.cut ? answer.text : "");
    const edited = isChanged(state) ? await ask("/trace", ofTrace({ ...state, target }), signal) : answer;
    return { ablation, trace: await traceOf(answer), edited: await traceOf(edited) };
  }

  follow(changed) {
    if (ANSWER.some((name) => !CHANGES.includes(name) && changed.has(name))) this.forget();
    super.follow(changed);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.ranker?.abort();
  }

  fixed(state) {
    return isChanged(state) ? [h("div", { class: "row controls" }, button(t("reset"), () => update(NOTHING),
      { id: "reset" }))] : [];
  }

  content({ ablation, trace, edited }, state) {
    this.results = this.resultsOf(ablation);
    this.editor = weightEditor(edited, state);
    this.switches = moduleSwitches(state);
    this.ranked = h("div", { class: "ranking" });
    this.grids = editedSites().map((site) => this.gridOf(site, trace));
    this.showRanking();
    const many = trace.shape("decoder_self")[1] > 4;
    return [this.results, this.controls(state),
      h("div", { class: `sites${many ? " one-column" : ""}` }, this.grids.map(({ site, grid }) =>
        h("section", { class: "card" }, h("h3", {}, t(`site.${site}`)), grid))), this.ranked, this.editor,
      h("div", { class: "pair" }, this.switches, continuesText() ? null : this.padding(state))];
  }

  /** The small maps are those of the whole model: only marks, results and the editor change with the changes. */
  draw() {
    if (this.grids?.[0].grid.isConnected && !this.failed && this.drawnFor === this.data.trace && !this.whole) {
      const state = current(), focus = this.contains(document.activeElement) ? document.activeElement.id : "";
      const swap = (name, made) => { this[name].replaceWith(made); this[name] = made; };
      swap("results", this.resultsOf(this.data.ablation));
      swap("editor", weightEditor(this.data.edited, state));
      swap("switches", moduleSwitches(state));
      this.querySelector(":scope > .controls").replaceWith(this.controls(state));
      const masked = this.querySelector("#padding_mask");
      if (masked) masked.checked = state.padding_mask;
      if (focus) document.getElementById(focus)?.focus();
      for (const { grid } of this.grids) if (grid.layout) grid.showStates();
      return;
    }
    this.drawnFor = this.data?.trace;
    super.draw();
  }

  patch(changed) {
    this.whole = !PLACE.some((name) => changed.has(name));
    this.draw();
    this.whole = false;
  }

  /** Everything that is changed, each with a way back. */
  controls(state) {
    const heads = Object.entries(headsOf(state.heads)).flatMap(([site, each]) => Object.entries(each)
      .map(([head, scale]) => ({ site, head, scale })));
    const list = [...heads.map((each) => scaleOf(each)), ...editsOf(state).map((edit) => this.changeOf(edit)),
      ...(state.beside ? [[h("span", {}, t(state.padding_mask ? "ablation.padded" : "ablation.unmasked")),
        restore(t("ablation.padding"), () => update({ beside: "" }))]] : [])];
    return h("div", { class: "controls ablation-controls" },
      h("div", { class: "row" }, this.rankButton(),
        button(t("reset"), () => update(NOTHING), { id: "reset", disabled: !list.length })),
      list.length ? h("ul", { class: "scales" }, list.map((each) => h("li", {}, each)))
        : h("p", { class: "note" }, t("ablation.hint")));
  }

  changeOf(edit) {
    const same = JSON.stringify(edit);
    const told = t(`ablation.edit.${edit.kind === "mask" ? (edit.visible ? "open" : "close") : edit.kind}`, {
      module: moduleTitle(edit.module), head: edit.head === null ? t("ablation.allHeads") : t("head.n", { n: edit.head }),
      row: edit.row, column: edit.column, value: number(edit.value ?? 0, 2) });
    return [h("span", {}, told), restore(told, () => dropEdits((each) => JSON.stringify(each) === same))];
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
        const factor = factorOf(current(), name(layer), head);
        return { off: factor === 1 ? "" : factor ? `×${factor}` : t("off") };
      },
      saying: (layer, head) => {
        const lost = this.deltas?.get(`${name(layer)}.${head}`);
        return `${name(layer)} · ${t("head.n", { n: head })}${lost === undefined ? "" : ` · Δ log P ${signed(lost)}`}`;
      },
    }, onpick: ({ detail }) => flip(name(detail.row), detail.column) });
    return { site, grid };
  }

  /** The end of the colour scale, in nats. */
  get most() {
    return Math.max(...[...(this.deltas?.values() ?? [])].map(Math.abs), LEAST);
  }

  badge(site, head) {
    const lost = this.deltas?.get(`${site}.${head}`);
    if (lost === undefined) return { content: "", share: 0 };
    const fill = lost < 0 ? palette().other : palette().accent;
    return { content: signed(lost, 2), share: Math.abs(lost) / this.most, fill,
      frame: colourOf(lost, "signs", this.most) };
  }

  resultsOf(ablation) {
    return h("div", { class: "columns" }, this.outputs(ablation), this.tokens(ablation));
  }

  outputs({ before, after, delta }) {
    const same = before.text === after.text, count = Math.max(1, before.tokens.length);
    return h("section", { class: "card", "aria-live": "polite" },
      h("h3", {}, t("ablation.before")), h("p", { class: "output" }, before.text),
      h("h3", {}, t("ablation.after")), h("p", { class: `output${same ? "" : " changed"}` }, after.text || "∅",
        same ? h("small", {}, ` ${t("ablation.same")}`) : "",
        after.cut ? h("small", { class: "cut" }, ` ${t("translate.cut")}`) : ""),
      h("dl", { class: "facts stacked" },
        h("dt", {}, t("ablation.old")), h("dd", { "data-number": "before" }, number(before.log_probability, 4)),
        h("dt", {}, t("ablation.new")), h("dd", { "data-number": "after" }, number(after.log_probability_of_old, 4)),
        h("dt", {}, t("ablation.delta")), h("dd", { "data-number": "delta" }, signed(delta, 4)),
        h("dt", {}, t("ablation.loss")), h("dd", { "data-number": "loss" },
          `${number(-before.log_probability / count, 3)} → ${number(-after.log_probability_of_old / count, 3)}`)));
  }

  tokens({ before, after }) {
    const changes = before.tokens.map((token, n) => ({ piece: token.piece, before: token.log_probability,
      after: after.tokens[n]?.log_probability ?? token.log_probability, best: after.tokens[n]?.best }));
    const most = Math.max(...changes.map((each) => Math.abs(each.after - each.before)), 0.5);
    return h("section", { class: "card" }, h("h3", {}, t("ablation.tokens")),
      h("p", { class: "note" }, t("ablation.unit", { most: number(most, 1) })),
      h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("ablation.tokens") },
      h("table", { class: "diverging" }, h("thead", {},
        h("tr", {}, ["piece", "bar", "change", "probability", "best"].map((name) => h("th", { scope: "col" },
          t(`ablation.${name}`))))),
        h("tbody", {}, changes.map(({ piece, before: old, after: now, best }) => h("tr", {},
          h("th", { scope: "row" }, visible(piece)),
          h("td", {}, h("span", { class: "zero" }, h("i", { class: now < old ? "less" : "more",
            style: { width: `${(Math.abs(now - old) / most) * 50}%` } }))),
          h("td", { class: "number" }, signed(now - old, 3)),
          h("td", { class: "number" }, `${percent(Math.exp(old))} → ${percent(Math.exp(now))}`),
          h("td", {}, best && best.piece !== piece ? `${visible(best.piece)} ${percent(best.probability)}` : "")))))));
  }

  padding(state) {
    return h("section", { class: "card" }, h("h3", {}, t("ablation.padding")),
      h("p", { class: "note" }, t("ablation.padding.explain")), paddingControls(state));
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
    const list = [...this.deltas].sort((a, b) => a[1] - b[1]), { most } = this;
    const steps = Array.from({ length: 9 }, (_, n) => (n / 4 - 1) * most);
    this.ranked.replaceChildren(h("section", { class: "card" }, h("h3", {}, t("ablation.ranking")),
      h("p", { class: "note", role: "status" }, t("ablation.progress", { count: list.length })),
      h("p", { class: "scale-legend" }, h("span", {}, `−${number(most, 2)}`), h("span", { class: "ramp",
        "aria-hidden": "true" }, steps.map((value) => h("i", { style: { background: colourOf(value, "signs", most) } }))),
        h("span", {}, `+${number(most, 2)} ${t("ablation.nats")}`)),
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
    return { ...ablation, changes: { heads: headsOf(current().heads), edits: editsOf(current()) },
      ranking: this.deltas ? Object.fromEntries(this.deltas) : null };
  }
}

const halves = (name) => [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
