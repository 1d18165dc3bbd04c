// How the model learned: its curves, and the attention of one sentence from checkpoint to checkpoint.

import { ask, wasCancelled } from "../api.js";
import { palette } from "../colour.js";
import { h, number, whole } from "../dom.js";
import { unchanged } from "../edits.js";
import { colon, t } from "../i18n.js";
import { checkpointsOf, chosen, isParallel, mainSite, stepName, stepOf } from "../models.js";
import { chartOf } from "../parts/chart.js";
import { choice } from "../parts/controls.js";
import "../parts/heat-map.js";
import "../parts/map-grid.js";
import { DECODER, ofTrace, trainingPath } from "../requests.js";
import { paint, stacked, text } from "../scene.js";
import { current, update } from "../store.js";
import { traceOf } from "../tensors.js";
import { complaint, View } from "../view.js";

const HEIGHT = 260;

export class Training extends View {
  static name = "training";
  static asks = ["model", "text", "target", ...DECODER];
  static draws = ["curve", "checkpoint"];
  static holds = false; // the frames hold the final model's answer by themselves
  static needsText = false; // for the curves

  load(state, signal) {
    this.film = [];
    if (!chosen().has_training) return null;
    return ask(trainingPath(), null, signal);
  }

  content(data, state) {
    if (!data) return [h("p", { class: "note" }, t("training.none"))];
    const kinds = ["loss", "learning_rate", ...Object.keys(data.validations[0] ?? {})
      .filter((name) => !["step", "loss"].includes(name))].filter((name) => seriesOf(data, name).length);
    const kind = kinds.includes(state.curve) ? state.curve : "loss";
    this.series = seriesOf(data, kind);
    this.kind = kind;
    this.canvas = h("canvas", { role: "img", "aria-label": this.description(kind) });
    const frames = isParallel() ? null : h("section", { class: "card" }, h("h3", {}, t("training.film")),
      h("p", { class: "note" }, t("training.film.explain")), (this.strip = h("div")));
    requestAnimationFrame(() => this.plot());
    if (frames) this.roll(state);
    return [
      h("div", { class: "row controls" }, choice("curve", t("training.curve"), kind,
        kinds.map((each) => [each, curveName(each)]))),
      h("section", { class: "card" }, h("h3", {}, curveName(kind)), h("ul", { class: "legend" },
        this.series.map((each) => h("li", { style: { "--mark": each.colour } }, each.name))), this.canvas,
        kind === "loss" && this.series.length > 1 ? h("p", { class: "note" }, t("training.unlike")) : null,
        this.table()),
      frames,
    ].filter(Boolean);
  }

  plot() {
    const width = this.canvas?.parentElement?.clientWidth;
    if (width) paint(this.canvas, this.chart(width - 48));
  }

  /** A line marks the step of the checkpoint that is shown. */
  chart(width) {
    return chartOf(this.series, Math.max(280, width), HEIGHT, { at: stepOf(current().checkpoint) });
  }

  resized(width) {
    if (width !== this.width) this.plot();
    this.width = width;
  }

  description(kind) {
    const parts = this.series.map(({ name, points }) => t("training.describe",
      { name, first: number(points[0][1], 4), last: number(points.at(-1)[1], 4), step: whole(points.at(-1)[0]) }));
    return `${curveName(kind)}. ${parts.join(" ")}`;
  }

  table() {
    const dots = this.series.find((each) => each.dots);
    return dots && h("details", { class: "as-table" }, h("summary", {}, t("map.table")), h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("training.step")), h("th", { scope: "col" }, dots.name))),
      h("tbody", {}, dots.points.map(([step, value]) => h("tr", {}, h("td", {}, whole(step)),
        h("td", {}, number(value, 4)))))));
  }

  async roll(state) {
    const { signal } = this.controller, told = (count, all) => this.strip.replaceChildren(h("p",
      { class: "note", role: "status" }, t("training.reading", { count, all })));
    if (!chosen().checkpoints?.length) return this.strip.replaceChildren(h("p", { class: "note" },
      t("training.alone")));
    if (!state.text.trim()) return this.strip.replaceChildren(h("p", { class: "note" }, t("error.no_text")));
    try {
      if (!this.film.length) this.film = await this.frames(state, signal, told);
      if (!signal.aborted) this.showFilm();
    } catch (error) {
      if (!wasCancelled(error) && !signal.aborted) this.strip.replaceChildren(complaint(error, () => this.roll(state)));
    }
  }

  /** The same sentence pair at every checkpoint, one after the other. */
  async frames(state, signal, told = () => {}) {
    const names = checkpointsOf(), found = [];
    if (names.length < 2 || isParallel()) return found;
    const asked = (checkpoint, target) => ask("/trace", ofTrace({ ...unchanged(state), checkpoint, target }), signal);
    const target = state.target || (await asked("", "")).text;
    for (const name of names) {
      told(found.length, names.length);
      const trace = await traceOf(await asked(name, target));
      found.push({ name, trace, matrix: trace.matrix(mainSite(), trace.together(mainSite(),
        { show: "mean", layer: -1, head: 0 })) });
    }
    return found;
  }

  showFilm() {
    const known = this.film.findIndex(({ name }) => name === current().checkpoint),
      { name, trace, matrix } = this.film[known < 0 ? this.film.length - 1 : known];
    this.grid = h("map-grid", { data: {
      id: "film", rows: 1, columns: this.film.length, largest: 170, label: t("training.film"),
      columnName: (n) => short(this.film[n].name),
      map: (_, n) => this.film[n].matrix,
      badge: (_, n) => ({ content: lost(this.film[n], 3), share: Math.exp(-this.film[n].trace.answer.loss) }),
      state: (_, n) => ({ pinned: n === at ? "●" : "" }),
      saying: (_, n) => `${stepName(this.film[n].name)} · ${lost(this.film[n], 4)}`,
      state: (_, n) => ({ pinned: this.film[n].name === name ? "▸" : "" }),
    }, onpick: ({ detail }) => update({ checkpoint: this.film[detail.column].name }, { quiet: true }) });
    this.map = h("heat-map", { data: { ...matrix, sums: true, label: `${stepName(name)}${colon()}${trace.answer.text}` } });
    this.strip.replaceChildren(this.grid, h("h3", {}, `${stepName(name)} · ${lost({ trace }, 4)}`), this.map);
  }

  patch(changed) {
    if (changed.has("checkpoint") && changed.size === 1 && this.film?.length) {
      const inside = this.grid?.contains(document.activeElement);
      this.plot();
      this.showFilm();
      if (inside) document.getElementById("film")?.focus();
    } else this.draw();
  }

  legend() {
    const items = this.series.map(({ name, colour }, n) => text(n * 160, 14, `● ${name}`, { fill: colour }));
    return { width: this.series.length * 160, height: 18, items };
  }

  picture() {
    const parts = [{ title: curveName(this.kind), scene: this.legend() }, { scene: this.chart(720) }];
    return stacked(this.grid ? [...parts, { title: t("training.film"), scene: this.grid.picture() }] : parts);
  }
}

const lost = ({ trace }, digits) => t("training.lost", { loss: number(trace.answer.loss, digits) });
const short = (name) => (stepOf(name) === null ? name || t("training.final") : whole(stepOf(name)));

/** One name in both languages where we have it; a metric of the user's own keeps its name. */
function curveName(name) {
  const names = { loss: "training.loss", learning_rate: "training.rate", bleu: "training.bleu" };
  return Object.hasOwn(names, name) ? t(names[name]) : name;
}

function seriesOf({ metrics, validations }, name) {
  const { accent, other } = palette(), points = (rows) => rows.filter((row) => typeof row[name] === "number")
    .map((row) => [row.step, row[name]]);
  return [
    { name: t("training.train"), points: points(metrics), colour: accent },
    { name: t("training.validation"), points: points(validations), colour: other, dots: true },
  ].filter((each) => each.points.length);
}
