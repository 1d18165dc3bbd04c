// All heads at a glance, and two of them side by side.

import { h, number } from "../dom.js";
import { factorOf } from "../edits.js";
import { colon, t } from "../i18n.js";
import { sites } from "../models.js";
import { choice, select, toggle } from "../parts/controls.js";
import "../parts/heat-map.js";
import "../parts/map-grid.js";
import { ANSWER, trace } from "../requests.js";
import { stacked } from "../scene.js";
import { current, update } from "../store.js";
import { cellKey, siteName } from "../tensors.js";
import { View } from "../view.js";

const BADGES = ["entropy", "distance", "diagonality", "special"];

export class Heads extends View {
  static name = "heads";
  static asks = ANSWER;
  static draws = ["site", "badge", "pins", "stretch"];

  load(state, signal) {
    return trace(state, signal);
  }

  content(found, state) {
    this.maps = pinsOf(state, found).map((pin) => this.pinned(found, pin));
    return [
      h("div", { class: "row controls" },
        choice("site", t("attention"), state.site, sites().map((site) => [site, t(`site.${site}`)])),
        select("badge", t("heads.badge"), state.badge, BADGES.map((badge) => [badge, t(`badge.${badge}`)])),
        toggle("stretch", t("heads.stretch"), state.stretch)),
      h("p", { class: "note" }, t(`badge.${state.badge}.explain`)),
      h("div", { class: "beside" }, h("section", { class: found.shape(state.site)[1] > 3 ? "card whole" : "card" },
        (this.grid = this.gridOf(found, state))), this.cards()),
    ];
  }

  /** Pins are marked without drawing the maps again. */
  patch(changed) {
    if (changed.has("pins") && changed.size === 1 && this.grid?.layout && !this.failed) {
      this.maps = pinsOf(current(), this.data).map((pin) => this.pinned(this.data, pin));
      this.grid.showStates();
      const [grid, ...old] = this.lastElementChild.children;
      for (const each of old) each.remove();
      grid.after(...this.cards());
    } else this.draw();
  }

  cards() {
    return this.maps.length ? this.maps.map(({ card }) => card) : [h("p", { class: "note" }, t("heads.pin"))];
  }

  gridOf(found, state) {
    const { site, badge, stretch } = state, [layers, heads, rows, columns] = found.shape(site);
    const numbers = found.answer.numbers[site], most = Math.max(...numbers.flat().map((each) => each[badge] ?? 0),
      1e-9);
    return h("map-grid", { data: {
      id: "grid", rows: layers, columns: heads, largest: 420, ...labelsOf(found, site), label: t("heads.label", { site: t(`site.${site}`) }),
      rowName: (n) => `L${found.layers(site)[n]}`, columnName: (n) => t("head.n", { n }),
      map: (layer, head) => {
        const values = found.head(site, layer, head);
        return { values, rows, columns, limit: stretch ? values.reduce((top, each) => Math.max(top, each), 1e-6) : 1 };
      },
      badge: (layer, head) => ({ content: number(numbers[layer][head][badge], 2),
        share: (numbers[layer][head][badge] ?? 0) / (badge === "entropy" || badge === "distance" ? most : 1) }),
      state: (layer, head) => {
        const at = pinsOf(current(), found).findIndex((pin) => pin.site === site && pin.layer === layer
          && pin.head === head);
        const factor = factorOf(current(), siteName(site, found.layers(site)[layer]), head);
        return { pinned: at < 0 ? "" : "AB"[at], off: factor === 1 ? "" : factor ? `×${factor}` : t("off") };
      },
      saying: (layer, head) => {
        const told = BADGES.map((each) => `${t(`badge.${each}`)} ${number(numbers[layer][head][each], 2)}`);
        return `${named(found, site, layer, head)}${colon()}${told.join(" · ")}`;
      },
    }, onpick: ({ detail }) => pin(site, detail.row, detail.column, found) });
  }

  pinned(found, { site, layer, head }) {
    const letter = "AB"[pinsOf(current(), found).findIndex((each) => each.site === site && each.layer === layer
      && each.head === head)];
    const matrix = found.matrix(site, found.head(site, layer, head));
    const numbers = found.answer.numbers[site][layer][head];
    const title = `${letter}${colon()}${t(`site.${site}`)} · ${named(found, site, layer, head)}`;
    const map = h("heat-map", { data: { ...matrix, sums: false, largest: 34, label: title,
      saying: (said, at) => t(cellKey(site, at.row, matrix.first), said) } });
    const factor = factorOf(current(), siteName(site, found.layers(site)[layer]), head);
    const card = h("section", { class: factor ? "card" : "card switched-off" }, h("h3", {}, title,
      factor === 1 ? null : h("small", { class: "off-label" }, factor ? `×${factor}` : t("off")),
      h("button", { type: "button", class: "link", "aria-label": `${t("heads.unpin")} ${letter}`,
        onclick: () => pin(site, layer, head, found) }, "×")),
      h("dl", { class: "facts" }, BADGES.map((badge) => h("div", {}, h("dt", {}, t(`badge.${badge}`)),
        h("dd", { "data-number": badge }, number(numbers[badge], 3))))), map);
    return { card, map, title };
  }

  subject() {
    return t(`site.${current().site}`);
  }

  picture() {
    const parts = [{ title: t(`site.${current().site}`), scene: this.grid.picture() }];
    return stacked([...parts, ...this.maps
      .map(({ map, title }) => ({ title, scene: map.sceneFor(map.width || 480) }))]);
  }

  exported() {
    return { site: current().site, numbers: this.data.answer.numbers, maps: this.data.answer.maps,
      block: this.data.answer.block, source: this.data.answer.source, target: this.data.answer.target };
  }
}

/** The tokens of all maps of a site, if they are few enough to be read in small maps. */
function labelsOf(found, site) {
  const { rows, columns } = found.sides(site);
  return { rowLabels: rows.pieces, columnLabels: columns.pieces };
}

const named = (found, site, layer, head) =>
  `${t("layer.n", { n: found.layers(site)[layer] })} · ${t("head.n", { n: head })}`;

/** `cross.1.0` in the address: site, layer, head. */
function pinsOf(state, found) {
  return state.pins.split(",").filter(Boolean).slice(-2).map((each) => {
    const [site, layer, head] = each.split(".");
    return { site, layer: Number(layer), head: Number(head) };
  }).filter(({ site, layer, head }) => sites().includes(site) && within(layer, found.shape(site)[0])
    && within(head, found.shape(site)[1]));
}

const within = (n, count) => Number.isInteger(n) && n >= 0 && n < count;

/** Pins or lets go; of three the oldest goes. */
function pin(site, layer, head, found) {
  const name = `${site}.${layer}.${head}`;
  const old = pinsOf(current(), found).map((each) => `${each.site}.${each.layer}.${each.head}`);
  update({ pins: (old.includes(name) ? old.filter((each) => each !== name) : [...old, name].slice(-2)).join(",") });
}
