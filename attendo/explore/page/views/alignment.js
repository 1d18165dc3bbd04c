// Who looked at whom: two lines of tokens joined by curves, and the map with both axes.

import { colourOf, inkOn, palette } from "../colour.js";
import { fill, h, meter, number, svg, visible } from "../dom.js";
import { factorOf } from "../edits.js";
import { t } from "../i18n.js";
import { counted, select, toggle } from "../parts/controls.js";
import "../parts/heat-map.js";
import { ANSWER, trace } from "../requests.js";
import { stacked } from "../scene.js";
import { rowsKey, sites } from "../models.js";
import { current } from "../store.js";
import { cellKey, hasRollout, siteName } from "../tensors.js";
import { View } from "../view.js";

const FAINTEST = 0.06; // weights below this have no curve while nothing is pointed at
const CURVES = 3000; // cells that still get curves while nothing is pointed at
const SHADES = 64; // of a token: finer ones nobody sees, and each change of a colour costs time

export class Alignment extends View {
  static name = "alignment";
  static asks = ANSWER;
  static draws = ["site", "show", "layer", "head", "words", "specials"];

  load(state, signal) {
    return trace(state, signal);
  }

  content(found, state) {
    const values = found.together(state.site, state);
    this.matrix = found.matrix(state.site, values, state);
    this.map = h("heat-map", { data: { ...this.matrix, sums: true, saying: (said, at) => t(cellKey(state.site,
      at.row, this.matrix.first), said), label: t("alignment.label", { how: this.how(state) }) }, oncell: ({ detail }) => this.light(detail) });
    return [this.controls(found, state), this.lines(state), h("div", { class: "map-and-list" },
      h("section", { class: "card" }, h("h3", {}, t("alignment.map")), h("p", { class: "note" }, t(rowsKey(state.site))),
        this.scaled(found, state), this.map), sureness(found.answer))];
  }

  /** Heads that are switched off or turned down, among those that are shown. */
  scaled(found, state) {
    const { show, site } = state, [layers, heads] = found.shape(site), names = [];
    const within = (n, count) => Math.min(Math.max(0, n), count - 1);
    for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) {
      if ((show === "head" ? layer !== within(state.layer, layers) || head !== within(state.head, heads)
        : show !== "rollout" && state.layer >= 0 && layer !== within(state.layer, layers))) continue;
      const factor = factorOf(state, siteName(site, found.layers(site)[layer]), head);
      if (factor !== 1) names.push({ name: `L${found.layers(site)[layer]}·H${head}`, factor });
    }
    const isOff = show === "head" ? names.some(({ factor }) => !factor)
      : names.length === (state.layer < 0 ? layers : 1) * heads && names.every(({ factor }) => !factor);
    this.map.classList.toggle("switched-off", isOff);
    return names.length ? h("p", { class: "notice off-label" }, t("alignment.scaled", { list: names.map((each) =>
      `${each.name} ${each.factor ? `×${each.factor}` : t("off")}`).join(", ") })) : null;
  }

  controls(found, state) {
    const [layers, heads] = found.shape(state.site);
    const shows = ["mean", "max", ...(hasRollout(state.site) && found.answer.rollout ? ["rollout"] : []), "head"];
    const layered = state.show === "head" ? counted(layers, "layer", found.layers(state.site))
      : [[-1, t("alignment.all")], ...counted(layers, "layer", found.layers(state.site))];
    return h("div", { class: "row controls" },
      select("site", t("attention"), state.site, sites().map((site) => [site, t(`site.${site}`)])),
      select("show", t("alignment.show"), state.show, shows.map((show) => [show, t(`show.${show}`)])),
      state.show === "rollout" ? null : select("layer", t("layer"), state.show === "head" ? Math.max(0, state.layer)
        : state.layer, layered),
      state.show === "head" ? select("head", t("head"), state.head, counted(heads, "head")) : null,
      toggle("words", t("alignment.words"), state.words), toggle("specials", t("alignment.specials"), state.specials));
  }

  how(state) {
    const [layers, heads] = this.data.shape(state.site);
    const at = (n, count) => Math.min(Math.max(0, n), count - 1);
    const layer = state.layer < 0 && state.show !== "head" ? t("alignment.all")
      : t("layer.n", { n: this.data.layers(state.site)[at(state.layer, layers)] });
    const head = t("head.n", { n: at(state.head, heads) });
    const part = state.show === "head" ? `${layer}, ${head}` : state.show === "rollout" ? t("show.rollout")
      : `${t(`show.${state.show}`)}, ${layer}`;
    return `${t(`site.${state.site}`)}, ${part}`;
  }

  lines(state) {
    const { rowLabels, columnLabels } = this.matrix;
    this.columns = columnLabels.map((label, n) => this.token(label, { row: null, column: n }));
    this.rows = rowLabels.map((label, n) => this.token(label, { row: n, column: null }));
    this.curves = svg("svg", { class: "curves", "aria-hidden": "true" });
    this.forgetPlaces();
    this.saying = h("output", { class: "readout" }, t("alignment.hint"));
    const upper = t(state.site === "decoder_self" ? "side.read" : "side.source"),
      lower = t(state.site === "encoder_self" ? "side.looking" : "side.predicted");
    this.stage = h("div", { class: "stage" }, this.curves,
      h("div", { class: "tokens-label" }, upper), h("div", { class: "tokens", role: "group", "aria-label": upper,
        onkeydown: step }, this.columns),
      h("div", { class: "between" }),
      h("div", { class: "tokens", role: "group", "aria-label": lower, onkeydown: step }, this.rows),
      h("div", { class: "tokens-label below-tokens" }, lower));
    requestAnimationFrame(() => this.arrange());
    return h("section", { class: "card" }, h("div", { class: "stage-scroll" }, this.stage), this.saying);
  }

  /** Two lines of tokens, or two columns if a line would wrap: curves would then run behind tokens. */
  arrange() {
    if (!this.stage?.isConnected) return;
    this.stage.classList.remove("upright");
    const wraps = (tokens) => tokens.length > 1 && tokens[0].offsetTop !== tokens.at(-1).offsetTop;
    this.stage.classList.toggle("upright", wraps(this.columns) || wraps(this.rows));
    this.forgetPlaces();
    this.join(null);
  }

  /** One stop of the Tab key a line; the arrow keys move within it. */
  token(label, place) {
    const first = (place.row ?? place.column) === 0;
    return h("button", { type: "button", class: "token", tabindex: first ? "0" : "-1",
      onpointerenter: () => this.point(place),
      onpointerleave: (event) => { if (event.pointerType !== "touch") this.point(null); },
      onfocus: () => this.point(place), onblur: () => this.point(null) }, visible(label));
  }

  point(place) {
    this.light(place);
    this.map.choose(place, false);
  }

  /** Colours the other side by strength. */
  light(place) {
    const { values, columns } = this.matrix;
    const byRow = place && place.row !== null, byColumn = place && place.column !== null;
    this.columns.forEach((token, n) => tint(token, byRow ? values[place.row * columns + n] : null,
      byColumn && place.column === n));
    this.rows.forEach((token, n) => tint(token, byColumn && !byRow ? values[n * columns + place.column] : null,
      byRow && place.row === n));
    this.join(place);
    this.saying.textContent = place ? this.told(place) : t("alignment.hint");
  }

  told({ row, column }) {
    const { values, columns, rows, rowLabels, columnLabels } = this.matrix;
    if (row !== null && column !== null) return t(cellKey(current().site, row, this.matrix.first), { row: visible(rowLabels[row]),
      column: visible(columnLabels[column]), value: number(values[row * columns + column], 4) });
    const found = row !== null
      ? columnLabels.map((label, n) => [label, values[row * columns + n]])
      : rowLabels.map((label, n) => [label, values[n * columns + column]]).slice(0, rows);
    const best = found.sort((a, b) => b[1] - a[1]).slice(0, 3).map(([label, value]) =>
      `${visible(label)} ${number(value)}`).join(" · ");
    return t(row !== null ? "alignment.row" : "alignment.column",
      { token: visible(row !== null ? rowLabels[row] : columnLabels[column]), best });
  }

  join(place) {
    if (!this.stage?.isConnected) return;
    const { values, columns, rows } = this.matrix;
    const row = place?.row ?? null, column = place?.column ?? null;
    if (!place && rows * columns > CURVES) return this.curves.replaceChildren();
    const found = [], upright = this.stage.classList.contains("upright");
    for (let r = row ?? 0; r < (row === null ? rows : row + 1); r++) {
      for (let c = row === null ? column ?? 0 : 0; c < (row === null && column !== null ? column + 1 : columns); c++) {
        const value = values[r * columns + c];
        if (value >= (place ? 0.01 : FAINTEST)) found.push(curve(this.placeOf(this.columns[c]),
          this.placeOf(this.rows[r]), upright, value, Boolean(place)));
      }
    }
    this.size ??= `0 0 ${this.stage.clientWidth} ${this.stage.clientHeight}`;
    this.curves.setAttribute("viewBox", this.size);
    this.curves.replaceChildren(...found);
  }

  /** Where a token stands on the stage, looked up once: to ask after each change of a colour would be slow. */
  placeOf(token) {
    if (!this.places.has(token)) {
      const { left, top, right, bottom } = token.getBoundingClientRect(), stage = this.stage.getBoundingClientRect();
      this.places.set(token, { left: left - stage.left, right: right - stage.left, top: top - stage.top,
        bottom: bottom - stage.top });
    }
    return this.places.get(token);
  }

  forgetPlaces() {
    this.places = new Map();
    this.size = null;
  }

  resized(width) {
    if (width !== this.width && this.curves) this.arrange();
    this.width = width;
  }

  subject() {
    return this.how(current());
  }

  picture() {
    return stacked([{ title: `${current().text} → ${this.data.answer.text}`,
      scene: { ...this.map.sceneFor(this.map.width || 640) } }, ]);
  }

  exported() {
    const { values, ...rest } = this.matrix;
    return { ...rest, values: Array.from(values), how: this.how(current()), text: this.data.answer.text };
  }
}

/** How sure the model was of each token. */
function sureness({ tokens, log_probability: log, loss }) {
  const rows = h("tbody");
  fill(rows, tokens.map((token) => h("tr", {}, h("th", { scope: "row" }, visible(token.piece)),
    h("td", {}, meter(Math.exp(token.log_probability))),
    h("td", { "data-number": "entropy" }, number(token.entropy, 3)))));
  return h("section", { class: "card" }, h("h3", {}, t("alignment.sure")),
    h("p", { class: "note" }, t("alignment.total", { log: number(log, 4), loss: number(loss, 4) })),
    h("div", { class: "table-scroll tall", tabindex: "0", role: "region", "aria-label": t("alignment.sure") },
      h("table", { class: "wide" },
      h("thead", {}, h("tr", {}, ["token", "probability", "entropy"].map((name) => h("th", { scope: "col" },
        t(`alignment.${name}`))))), rows)));
}

function step(event) {
  const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: -1e6, End: 1e6 }[event.key];
  if (!move) return;
  event.preventDefault();
  const tokens = [...event.currentTarget.children];
  const next = tokens[Math.min(Math.max(tokens.indexOf(document.activeElement) + move, 0), tokens.length - 1)];
  tokens.forEach((token) => token.setAttribute("tabindex", token === next ? "0" : "-1"));
  next?.focus();
}

/** Only what has changed: of a long text most tokens stay as they are when the next one is pointed at. */
function tint(token, value, chosen) {
  const shade = value === null ? null : Math.round(value * SHADES) / SHADES;
  if (token.classList.contains("chosen") !== Boolean(chosen)) token.classList.toggle("chosen", Boolean(chosen));
  if ((token.shade ?? null) === shade) return;
  token.shade = shade;
  if (shade === null) {
    token.style.removeProperty("background-color");
    token.style.removeProperty("color");
  } else {
    token.style.setProperty("background-color", colourOf(shade));
    token.style.setProperty("color", inkOn(shade));
  }
}

function curve(from, to, upright, value, lit) {
  const centre = (low, high) => (low + high) / 2;
  const [x, y, u, v] = upright ? [from.right, centre(from.top, from.bottom), to.left, centre(to.top, to.bottom)]
    : [centre(from.left, from.right), from.bottom, centre(to.left, to.right), to.top];
  const [across, down] = [centre(x, u), centre(y, v)];
  const d = upright ? `M${x} ${y}C${across} ${y} ${across} ${v} ${u} ${v}` : `M${x} ${y}C${x} ${down} ${u} ${down} ${u} ${v}`;
  return svg("path", { d, fill: "none", stroke: palette().accent,
    "stroke-width": 0.6 + 3.4 * value, "stroke-opacity": lit ? 0.25 + 0.75 * value : 0.12 + 0.6 * value,
    "stroke-linecap": "round" });
}
