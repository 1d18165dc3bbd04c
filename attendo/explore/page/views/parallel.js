// All tokens at once: the passes of mask-predict, the graph or the CTC alignment, beside the steps of another model.

import { ask, savedViews, wasCancelled } from "../api.js";
import { colourOf, inkOn, palette } from "../colour.js";
import { h, number, percent, track, visible } from "../dom.js";
import { t } from "../i18n.js";
import { besideModel, chosen } from "../models.js";
import { GraphDrawing, nameOf } from "../parts/graph-drawing.js";
import { numeric, select } from "../parts/controls.js";
import { reading } from "../reading.js";
import { ofBeside, ofParallel } from "../requests.js";
import { rect, stacked, tableScene, text, textWidth } from "../scene.js";
import { complaint, View } from "../view.js";

const SEARCHES = ["lookahead", "greedy", "viterbi", "tokens"];
const BLANK = "·";

export class Parallel extends View {
  static name = "parallel";
  static asks = ["model", "checkpoint", "text", "target", "max_length", "passes", "graph_search"];

  async load(state, signal) {
    const data = await ask("/parallel", ofParallel(state), signal), other = besideModel();
    if (!other) return { ...data, beside: null };
    try {
      const { steps, text: said, ended } = await ask("/steps", ofBeside(state, other), signal);
      return { ...data, beside: { model: other.name, text: said, steps, ended } };
    } catch (error) {
      if (wasCancelled(error)) throw error;
      return { ...data, beside: { model: other.name, error } };
    }
  }

  heading() {
    const kind = chosen()?.config?.kind;
    const intro = { masked: "parallel.intro.masked", ctc: "parallel.intro.ctc", graph: "parallel.intro.graph" }[kind];
    return h("header", { class: "heading" }, h("h2", {}, t("parallel.title")), h("p", {}, t(intro ?? "parallel.intro")),
      h("p", {}, t("parallel.views")), reading("parallel"));
  }

  /** A saved page has one search: it is told, not chosen. */
  fixed(state) {
    const kind = chosen()?.config?.kind;
    if (savedViews) return [];
    if (kind === "masked") return [h("div", { class: "row controls" }, numeric("passes", t("parallel.passes"),
      state.passes, { min: 0, max: 50 }))];
    if (kind === "graph") return [h("div", { class: "row controls" }, select("graph_search", t("parallel.search"),
      state.graph_search, [["", t("parallel.own")], ...SEARCHES.map((each) => [each, t(`search.${each}`)])]))];
    return [];
  }

  content(data, state) {
    return [...this.fixed(state), ...this.parts(data), this.beside(data)].filter(Boolean);
  }

  parts(data) {
    this.drawing = null;
    if (data.kind === "masked") return [this.passes(data), this.lengths(data)];
    return [data.kind === "graph" ? this.graph(data) : this.alignment(data)];
  }

  graph(data) {
    this.drawing = new GraphDrawing(data);
    const shown = this.drawing.named.map((box) => box.vertex);
    const rows = shown.map((vertex) => [String(vertex.position), percent(vertex.pass_probability), vertex.top.length
      ? vertex.top.map((each) => `${visible(each.piece)} ${percent(each.probability)}`).join(" · ")
      : nameOf(vertex, data.vertices), data.links.filter((link) => link.start === vertex.position)
      .map((link) => `${link.end} (${percent(link.probability)})`).join(" · ")]);
    const hidden = data.vertices.length - shown.length;
    return h("section", { class: "card" }, h("h3", {}, t("parallel.graph")), this.score(data),
      h("ul", { class: "legend" }, h("li", { style: { "--mark": palette().accent } }, t("parallel.path")),
        h("li", { style: { "--mark": palette().soft } }, t("parallel.links"))),
      this.drawing.elements(),
      hidden ? h("p", { class: "note" }, t("parallel.hidden", { count: hidden })) : null,
      asTable(["position", "visited", "tokens", "following"], rows));
  }

  passes(data) {
    const count = data.passes[0].length;
    return h("section", { class: "card" }, h("h3", {}, t("parallel.passesTitle")), this.score(data),
      h("ul", { class: "legend" }, h("li", { style: { "--mark": palette().other } }, t("parallel.again")),
        h("li", {}, t("parallel.kept"))),
      h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("parallel.passesTitle") },
        h("table", { class: "passes" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("parallel.position")),
            Array.from({ length: count }, (_, n) => h("th", { scope: "col" }, String(n))))),
          h("tbody", {}, data.passes.map((tokens, n) => h("tr", {}, h("th", { scope: "row" },
            t("parallel.pass", { n })), tokens.map((each) => h("td", { class: each.predicted ? "again" : null,
            title: `${visible(each.piece)} ${percent(each.probability)} · ${t(each.predicted ? "parallel.again"
              : "parallel.kept")}`, style: tint(each.probability) }, visible(each.piece),
            h("small", {}, `${Math.round(each.probability * 100)}`)))))))),
      h("p", { class: "note" }, t("parallel.confidence")));
  }

  lengths(data) {
    return h("section", { class: "card" }, h("h3", {}, t("parallel.lengths")),
      h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("parallel.lengths") },
        table(["length", "lengthProbability", "mean", "text"], data.lengths.map((each) => [String(each.length),
          percent(each.probability), number(each.mean_log_probability), each.text]),
        data.lengths.map((each) => (each.chosen ? "chosen" : null)))));
  }

  alignment(data) {
    const rows = data.positions.map((each) => [String(each.position), visible(each.piece) || BLANK,
      percent(each.probability), each.top.map((one) => `${visible(one.piece) || BLANK} ${percent(one.probability)}`)
        .join(" · ")]);
    return h("section", { class: "card" }, h("h3", {}, t("parallel.alignment")), this.score(data),
      h("ol", { class: "runs" }, runsOf(data.positions).map((run) => h("li", {},
        h("span", { class: "tiles" }, run.map((each) => h("span", { class: each.blank ? "tile blank" : "tile",
          title: each.top.map((one) => `${visible(one.piece) || BLANK} ${percent(one.probability)}`).join(", "),
          style: each.blank ? {} : tint(each.probability) }, each.blank ? BLANK : visible(each.piece),
          h("small", {}, each.blank ? "\u00a0" : `${Math.round(each.probability * 100)}`)))),
        h("b", { class: run[0].blank ? "dropped" : null }, visible(run[0].piece)),
        h("small", {}, run.length > 1 ? `${run[0].position}–${run.at(-1).position}` : String(run[0].position))))),
      asTable(["position", "token", "probability", "tokens"], rows));
  }

  score(data) {
    const key = data.kind === "masked" ? "parallel.confidences" : "parallel.log";
    return h("dl", { class: "facts" }, h("div", {}, h("dt", {}, t("parallel.answer")), h("dd", {}, data.text)),
      h("div", {}, h("dt", {}, t(key)), h("dd", { "data-number": "log" }, number(data.log_probability, 4))),
      savedViews && data.options.graph_search ? h("div", {}, h("dt", {}, t("parallel.search")), h("dd", {},
        t(`search.${data.options.graph_search}`))) : null,
      data.cut ? h("div", {}, h("dd", {}, t("translate.cut"))) : null);
  }

  beside(data) {
    const { beside } = data;
    if (!beside) return h("p", { class: "note" }, t(savedViews ? "parallel.alone.saved" : "parallel.alone"));
    if (beside.error) return h("section", { class: "card" }, h("h3", {}, t("parallel.beside",
      { model: beside.model })), complaint(beside.error, () => this.refresh()));
    return h("section", { class: "card" }, h("h3", {}, t("parallel.beside", { model: beside.model })),
      h("p", { class: "note" }, t("parallel.besideNote", { count: beside.steps.length })),
      h("p", { class: "output" }, beside.text),
      h("p", { class: "note" }, t(beside.text === data.text ? "parallel.same" : "parallel.different")),
      h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("parallel.beside",
        { model: beside.model }) }, h("table", { class: "wide" },
        h("thead", {}, h("tr", {}, ["step", "token", "probability", "tokens"].map((name) => h("th", { scope: "col" },
          t(`parallel.${name}`))))),
        h("tbody", {}, beside.steps.map((step, n) => h("tr", {}, h("td", {}, String(n)),
          h("th", { scope: "row" }, visible(step.chosen)),
          h("td", {}, h("span", { class: "meter" }, track(step.probability), percent(step.probability))),
          h("td", {}, others(step))))))));
  }

  picture(data) {
    const parts = { graph: () => [{ title: t("parallel.graph"), scene: this.drawing.scene() }],
      masked: () => [{ title: t("parallel.passesTitle"), scene: tilesScene(data.passes) }],
      ctc: () => [{ title: t("parallel.alignment"), scene: tilesScene([data.positions], true) }] }[data.kind]();
    const steps = data.beside?.steps?.map((step, n) => [String(n), visible(step.chosen), percent(step.probability),
      others(step)]);
    return stacked(steps ? [...parts, { title: t("parallel.beside", { model: data.beside.model }),
      scene: tableScene(["step", "token", "probability", "tokens"].map((name) => t(`parallel.${name}`)), steps) }]
      : parts);
  }
}

const others = (step) => step.top.slice(0, 4).map((each) => `${visible(each.piece)} ${percent(each.probability)}`)
  .join(" · ");
const tint = (value) => ({ background: colourOf(levelOf(value)), color: inkOn(levelOf(value)) });

/** Without the middle of the scale, on which no ink is easy to read: above one half a tile is dark. */
const levelOf = (value) => (value < 0.5 ? 0.84 * value : 0.68 + 0.64 * (value - 0.5));

function table(names, rows, kinds = []) {
  return h("table", { class: "wide" }, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" },
    t(`parallel.${name}`))))), h("tbody", {}, rows.map(([first, ...rest], n) => h("tr", { class: kinds[n] },
    h("th", { scope: "row" }, first), rest.map((cell) => h("td", {}, cell))))));
}

const asTable = (names, rows) => h("details", { class: "as-table" }, h("summary", {}, t("map.table")),
  h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("map.table") },
    table(names, rows)));

/** Neighbours with the same token. */
function runsOf(positions) {
  const runs = [];
  for (const each of positions) {
    if (runs.at(-1)?.[0].id === each.id) runs.at(-1).push(each);
    else runs.push([each]);
  }
  return runs;
}

/** Rows of tokens as coloured tiles; a row that is too long goes on below. */
function tilesScene(rows, merged = false, most = 14) {
  const items = [], { faint, soft, other } = palette();
  const wide = Math.max(40, ...rows.flat().map((each) => textWidth(visible(each.piece), 13) + 16));
  let top = 0;
  for (let from = 0; from < rows[0].length; from += most) {
    rows.forEach((row, n) => {
      row.slice(from, from + most).forEach((each, k) => {
        const x = k * (wide + 3), ink = each.blank ? soft : inkOn(levelOf(each.probability));
        items.push(rect(x, top, wide, 36, each.blank ? faint : colourOf(levelOf(each.probability)), { radius: 5,
          stroke: each.predicted ? other : undefined }),
          text(x + wide / 2, top + 16, visible(each.piece) || BLANK, { size: 13, anchor: "middle", fill: ink }),
          text(x + wide / 2, top + 30, percent(each.probability), { size: 10, anchor: "middle", fill: ink }));
        if (merged && each.chosen) items.push(text(x + wide / 2, top + 54, visible(each.piece), { size: 13,
          anchor: "middle", weight: 650 }));
      });
      top += n === rows.length - 1 ? 0 : 40;
    });
    top += merged ? 70 : 54;
  }
  return { width: Math.min(most, rows[0].length) * (wide + 3), height: top, items };
}
