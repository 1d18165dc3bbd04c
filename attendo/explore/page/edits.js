// Changes of the network in the address: layers off, attention weights, cells of masks, a longer sentence beside.

import { current, headsAs, headsOf, update } from "./store.js";

/** State names of everything that changes the network. */
export const CHANGES = ["heads", "edits", "beside", "padding_mask"];

/** A state of the whole model. */
export const unchanged = (state) => ({ ...state, heads: "", edits: "", beside: "" });

export const isChanged = ({ heads, edits, beside }) => Boolean(heads || edits || beside);

/** What a request carries; nothing where nothing is changed. */
export function changesOf(state) {
  const edits = editsOf(state), beside = state.beside.trim();
  if (beside) edits.push({ kind: "padding", text: beside, masked: state.padding_mask });
  return { heads: headsOf(state.heads), ...(edits.length ? { edits } : {}) };
}

/** `off:decoder.1`, `weight:decoder.0.cross.1.2.3=0.8`, `mask:decoder.self.*.0.1=1`: module, head, row, column. */
export function editsOf({ edits }) {
  return edits.split(",").filter(Boolean).map((each) => {
    const [kind, rest = ""] = each.split(":");
    if (kind === "off") return { kind, module: rest };
    const [place, value] = rest.split("="), parts = place.split(".");
    const [head, row, column] = parts.splice(-3);
    const cell = { kind, module: parts.join("."), head: head === "*" ? null : Number(head), row: Number(row),
      column: Number(column) };
    return kind === "weight" ? { ...cell, value: Number(value) } : { ...cell, visible: value === "1" };
  });
}

export function editsAs(edits) {
  return edits.map(({ kind, module, head, row, column, value, visible }) => (kind === "off" ? `off:${module}`
    : `${kind}:${module}.${head ?? "*"}.${row}.${column}=${kind === "weight" ? value : Number(visible)}`)).join(",");
}

const sameCell = (one, other) => ["kind", "module", "head", "row", "column"].every((name) => one[name] === other[name]);

/** Adds an edit in place of an older one of the same cell or module, and of those that `isDropped` finds. */
export function setEdit(edit, isDropped = () => false) {
  const others = editsOf(current()).filter((each) => !sameCell(each, edit) && !isDropped(each));
  update({ edits: editsAs([...others, edit]) });
}

export function dropEdits(isDropped) {
  update({ edits: editsAs(editsOf(current()).filter((each) => !isDropped(each))) });
}

export function toggleModule(module) {
  if (editsOf(current()).some((each) => each.kind === "off" && each.module === module)) dropEdits((each) =>
    each.kind === "off" && each.module === module);
  else setEdit({ kind: "off", module });
}

export const isOff = (state, module) => editsOf(state).some((each) => each.kind === "off"
  && (each.module === module || module.startsWith(`${each.module}.`)));

/** The factor of a head: 0 as well where its sub-layer or layer is off. */
export function factorOf(state, site, head) {
  return isOff(state, site) ? 0 : headsOf(state.heads)[site]?.[head] ?? 1;
}

export function setHead(site, head, scale) {
  const heads = headsOf(current().heads);
  (heads[site] ??= {})[head] = scale;
  update({ heads: headsAs(heads) });
}

/** Switches off the other heads of a sub-layer; without a head, all of them are as they were. */
export function keepOnly(site, head, count) {
  const heads = headsOf(current().heads);
  heads[site] = Object.fromEntries(Array.from({ length: count }, (_, n) => [n, n === head || head === null ? 1 : 0]));
  update({ heads: headsAs(heads) });
}
