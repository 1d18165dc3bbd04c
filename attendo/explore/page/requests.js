// What is asked of the server, made from the state.

import { ask } from "./api.js";
import { chosen, isParallel } from "./models.js";
import { headsOf } from "./store.js";
import { traceOf } from "./tensors.js";

const BEAM = ["beam", "n_best", "length_penalty"];
const SAMPLE = ["temperature", "top_k", "top_p", "seed"];

/** State names that decide an answer; `ANSWER` with those that decide what is looked at. */
export const DECODER = ["kind", "max_length", ...BEAM, ...SAMPLE];
export const ANSWER = ["model", "checkpoint", "text", "target", "heads", "layers", ...DECODER];

export function decoderOf(state) {
  const names = { greedy: [], beam: BEAM, sample: SAMPLE }[state.kind] ?? [];
  const found = { kind: state.kind };
  for (const name of names) found[name] = state[name];
  if (found.n_best > found.beam) found.n_best = found.beam;
  if (state.max_length) found.max_length = state.max_length;
  return found;
}

export const basics = (state) => ({
  model: chosen()?.name, checkpoint: state.checkpoint || null, text: state.text, decoder: decoderOf(state),
});

export const withTarget = (state) => ({ ...basics(state), target: state.target || null });

/** A model that predicts all tokens at once has no beam and no samples; its controls are hidden. */
export const ofStream = (state) => ({ ...basics(isParallel() ? { ...state, kind: "greedy" } : state), heads: headsOf(state.heads), prefix: null, stream: true });
export const ofTrace = (state) => ({ ...withTarget(state), heads: headsOf(state.heads), masked: true,
  layers: layersOf(state) });
export const ofSteps = (state) => ({ ...basics(state), heads: headsOf(state.heads), prefix: prefixOf(state) });
export const ofTree = (state) => ({ ...basics({ ...state, kind: "beam" }), heads: headsOf(state.heads) });
export const ofMask = (state) => ({ ...withTarget(state), layer: state.mask_layer, head: state.mask_head });
export const withHeads = (state) => ({ ...withTarget(state), heads: headsOf(state.heads) });
export const ofAblation = withHeads;

/** `operation` is a step of /operations. A window beyond its end is not asked for. */
export function ofCalculation(state, { name, shape }) {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : name.endsWith("frequencies") ? [1, ...shape]
    : [...shape, 1];
  const within = (first, count) => (first >= 0 && first < count ? first : 0);
  return { ...withHeads(state), operation: name, head: within(state.head, chosen().heads),
    row: within(state.first_row, rows), column: within(state.first_column, columns) };
}

export const ofParallel = (state) => ({ ...basics({ ...state, kind: "greedy" }),
  target: (chosen()?.config?.kind !== "masked" && state.target) || null, passes: state.passes || null,
  graph_search: state.graph_search || null });
export const ofBeside = (state, model) => ({ model: model.name, checkpoint: null, text: state.text,
  decoder: { kind: "greedy" }, heads: {}, prefix: [] });
export const ofRanking = withTarget;
export const trainingPath = () => `/training?model=${encodeURIComponent(chosen().name)}`;

export async function trace(state, signal) {
  return traceOf(await ask("/trace", ofTrace(state), signal));
}

/** Layers whose maps are asked for; all unless the answer would be too large. */
function layersOf({ layers }) {
  const found = layers.split(",").filter(Boolean).map(Number).filter(Number.isInteger);
  return found.length ? found : null;
}

/** The tokens that are forced, by id or piece; anything else in the address counts as none. */
export function prefixOf({ prefix }) {
  try {
    const pieces = JSON.parse(prefix || "[]");
    return Array.isArray(pieces) ? pieces.filter((piece) => typeof piece === "string" || Number.isInteger(piece)) : [];
  } catch {
    return [];
  }
}
