// The one state of the page: kept in the address, so that a link shows what its sender saw and the back button works.

const DEFAULTS = {
  view: "home", lang: "", model: "", checkpoint: "", text: "", target: "",
  kind: "greedy", beam: 4, n_best: 4, length_penalty: 1, temperature: 1, top_k: 0, top_p: 1, seed: 1, max_length: 0,
  heads: "", layers: "", hold: true,
  site: "cross", show: "mean", layer: -1, head: 0, words: false, specials: true,
  badge: "entropy", pins: "", stretch: false,
  prefix: "", forced: "", step: 0, logarithmic: false,
  cuts: true,
  mask_site: "decoder_self", mask_layer: 0, mask_head: 0, mask_off: false,
  edits: "", beside: "", padding_mask: true, edit_site: "cross", edit_layer: 0, edit_head: 0, edit_row: 0,
  rep: "lens", rep_stack: "decoder", rep_layer: -1, rep_side: "source",
  operation: "", first_row: 0, first_column: 0, cell: "",
  versus: "checkpoints", other: "", same: true,
  curve: "loss",
  passes: 0, graph_search: "",
  module: "", teacher: false, follow: "", unfolded: "", all_heads: false,
  tour: 0,
};

const CHOICES = {
  view: ["home", "alignment", "heads", "steps", "tree", "mask", "calculator", "ablation", "representations", "compare",
    "training", "parallel"],
  lang: ["", "en", "zh"], kind: ["greedy", "beam", "sample"], site: ["encoder_self", "decoder_self", "cross", "to_source"],
  show: ["mean", "max", "rollout", "head"], badge: ["entropy", "distance", "diagonality", "special"],
  versus: ["checkpoints", "decoders", "sources"],
  mask_site: ["encoder_self", "decoder_self", "cross"], edit_site: ["encoder_self", "decoder_self", "cross"],
  rep: ["lens", "similarity", "units", "positions", "embeddings"], rep_stack: ["encoder", "decoder"],
  rep_side: ["source", "target"],
  graph_search: ["", "lookahead", "greedy", "viterbi", "tokens"],
};

const FRACTIONS = ["length_penalty", "temperature", "top_p"]; // all other numbers are whole

const listeners = new Set();
// A page in one file begins with its own state, and an address changes parts of it, such as `#lang=zh`.
const BEGIN = read(document.getElementById("recorded")?.dataset.state ?? "", DEFAULTS);
let state = read(location.hash.slice(1), BEGIN);

export const current = () => state;

/** Changes some of it. A `quiet` change takes no place in the history: a slider is not worth one. */
export function update(changes, { quiet = false } = {}) {
  const changed = differences({ ...state, ...changes });
  if (!changed.size) return;
  state = { ...state, ...changes };
  try {
    history[quiet ? "replaceState" : "pushState"](null, "", written(state));
  } catch { /* in the frame of a notebook there is no address */ }
  tell(changed);
}

/** Calls with the names that have changed; gives a function that ends it. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Something that every view shows has changed without being in the state: the theme, the list of models. */
export const redraw = (name) => tell(new Set([name]));

/** `{"decoder.0.cross": {"3": 0.5}}` from and to the form it has in the address: `decoder.0.cross.3=0.5`. */
export function headsOf(text) {
  const heads = {};
  for (const each of text.split(",").filter(Boolean)) {
    const [place, scale] = each.split("=");
    const cut = place.lastIndexOf(".");
    (heads[place.slice(0, cut)] ??= {})[place.slice(cut + 1)] = Number(scale);
  }
  return heads;
}

export function headsAs(heads) {
  const entries = Object.entries(heads).flatMap(([site, each]) =>
    Object.entries(each).filter(([, scale]) => scale !== 1).map(([head, scale]) => `${site}.${head}=${scale}`));
  return entries.sort().join(",");
}

/** The address of a state, beginning with #. */
export function written(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== BEGIN[name]) query.set(name, String(value));
  return `#${query}`;
}

/** The state that an address changes `from`. */
function read(address, from) {
  const found = { ...from };
  for (const [name, text] of new URLSearchParams(address)) {
    if (!Object.hasOwn(DEFAULTS, name)) continue;
    const kind = typeof DEFAULTS[name];
    const value = kind === "number" ? Number(text) : kind === "boolean" ? text === "true" : text;
    const sound = kind !== "number" || (FRACTIONS.includes(name) ? Number.isFinite : Number.isSafeInteger)(value);
    if (sound && (CHOICES[name]?.includes(value) ?? true)) found[name] = value;
  }
  return found;
}

function differences(next) {
  return new Set(Object.keys(DEFAULTS).filter((name) => next[name] !== state[name]));
}

function tell(changed) {
  for (const listener of [...listeners]) listener(changed);
}

function moved() {
  const next = read(location.hash.slice(1), BEGIN);
  const changed = differences(next);
  state = next;
  if (changed.size) tell(changed);
}

addEventListener("popstate", moved);
addEventListener("hashchange", moved);
