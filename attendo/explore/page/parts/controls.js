// Small controls with a label: a choice, a switch, a number, a range.

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { update } from "../store.js";

/** A list to choose from; `options` are [value, label]. */
export function select(id, label, value, options, onchange = (chosen) => update({ [id]: chosen })) {
  const numeric = typeof value === "number";
  const list = h("select", { id, onchange: (event) => onchange(numeric ? Number(event.target.value)
    : event.target.value) },
    options.map(([each, name]) => h("option", { value: String(each), selected: String(each) === String(value) },
      name)));
  return h("label", { class: "field" }, h("span", {}, label), list);
}

/** A few choices side by side. */
export function choice(id, label, value, options, onchange = (chosen) => update({ [id]: chosen })) {
  return h("fieldset", { class: "choice" }, h("legend", {}, label),
    h("div", { class: "segments" }, options.map(([each, name]) => h("label", {},
      h("input", { type: "radio", id: `${id}-${each}`, name: id, value: String(each), checked: each === value,
        onchange: () => onchange(each) }),
      h("span", {}, name)))));
}

export function toggle(id, label, value, onchange = (on) => update({ [id]: on })) {
  return h("label", { class: "switch" },
    h("input", { id, type: "checkbox", role: "switch", checked: value,
      onchange: (event) => onchange(event.target.checked) }),
    h("span", {}, label));
}

export function numeric(id, label, value, { min, max, step = 1 }, onchange = (number) => update({ [id]: number })) {
  const field = h("input", { id, type: "number", min, max, step, value: String(value), onchange: (event) => {
    const given = Number(event.target.value), whole = step === 1 ? Math.round(given) : given;
    const kept = Math.min(Math.max(Number.isFinite(whole) ? whole : min, min), max ?? Infinity);
    event.target.value = String(kept);
    onchange(kept);
  } });
  return h("label", { class: "field" }, h("span", {}, label), field);
}

export function button(label, onclick, more = {}) {
  return h("button", { type: "button", onclick, ...more }, label);
}

/** "layer" or "head", counted from 0 as in the names of tensors; `numbers` are theirs where some are missing. */
export const counted = (count, kind, numbers = null) => Array.from({ length: count },
  (_, n) => [n, t(`${kind}.n`, { n: numbers?.[n] ?? n })]);
