// What is asked of the server, made from the state.

import { ask } from "./api.js";
import { CHANGES, changesOf } from "./edits.js";
import { chosen, isParallel } from "./models.js";
import { traceOf } from "./tensors.js";

const BEAM = ["beam", "n_best", "length_penalty"];
const SAMPLE = ["temperature", "top_k", "top_p", "seed"];

/** State names that decide an answer; `ANSWER` with those that decide what is looked at. */
export const DECODER = ["kind", "max_length", ...BEAM, ...SAMPLE];
export const ANSWER = ["model", "checkpoint", "text", "target", ...CHANGES, "layers", ...DECODER];

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
export const ofStream = (state) => ({ ...basics(isParallel() ? { ...state, kind: "greedy" } : state), ...changesOf(state), prefix: null, stream: true });
export const ofTrace = (state) => ({ ...withTarget(state), ...changesOf(state), masked: true,
  layers: layersOf(state) });
export const ofSteps = (state) => ({ ...basics(state), ...changesOf(state), prefix: prefixOf(state),
  attention: true });
export const ofTree = (state) => ({ ...basics({ ...state, kind: "beam" }), ...changesOf(state) });
export const ofMask = (state) => ({ ...withTarget(state), ...changesOf(state), site: state.mask_site, layer: state.mask_layer, head: state.mask_head });
export const withChanges = (state) => ({ ...withTarget(state), ...changesOf(state) });
/** Only an autoregressive network can be edited; a masked one predicts no given target. */
export const ofForward = (state) => (isParallel() ? ofParallelPass(state) : withChanges(state));
const ofParallelPass = (state) => ({ ...basics({ ...state, kind: "greedy" }),
  target: (chosen()?.config?.kind !== "masked" && state.target) || null, heads: {} });
export const ofAblation = withChanges;
export const ofRepresentations = withChanges;
export const ofEmbeddings = (state) => ({ ...withChanges(state), side: state.rep_side });

/** `operation` is a step of /operations. A window beyond its end is not asked for. */
export function ofCalculation(state, { name, shape }) {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : name.endsWith("frequencies") ? [1, ...shape]
    : [...shape, 1];
  const within = (first, count) => (first >= 0 && first < count ? first : 0);
  return { ...ofForward(state), operation: name, head: within(state.head, chosen().heads),
    row: within(state.first_row, rows), column: within(state.first_column, columns) };
}

export const ofParallel = (state) => ({ ...basics({ ...state, kind: "greedy" }),
  target: (chosen()?.config?.kind !== "masked" && state.target) || null, passes: state.passes || null,
  graph_search: state.graph_search || null });
export const ofBeside = (state, model) => ({ model: model.name, checkpoint: null, text: state.text,
  decoder: { kind: "greedy" }, heads: {}, prefix: [] });
export const ofRanking = withTarget;
export const ofDistribution = (state, ids) => ({ ...basics({ ...state, kind: "greedy" }), ...changesOf(state), prefix: ids });
export const vocabularyPath = () => `/vocabulary?model=${encodeURIComponent(chosen().name)}`;
export const trainingPath = () => `/training?model=${encodeURIComponent(chosen().name)}`;

/** At a checkpoint every view looks at the answer of the final model, so that its maps can be compared with others. */
export async function held(state, signal) {
  if (!state.checkpoint || !state.hold || state.target) return state;
  const { hypotheses } = await ask("/answer", { ...basics({ ...state, checkpoint: "" }), heads: {}, prefix: null,
    alternatives: 0, stream: false }, signal);
  return { ...state, target: hypotheses[0].text };
}

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

/** The places of the tokens that were forced; the others of the prefix were chosen by the model before them. */
export function forcedOf(state) {
  const { length } = prefixOf(state), places = state.forced.split(",").filter(Boolean).map(Number);
  return length && !places.length ? [length - 1] : places.filter((n) => n < length);
}

const RESHAPED = [...BEAM, ...SAMPLE];

/** Whether a setting changes an answer: the temperature of a greedy search does not. */
export const decides = (name, state) => !RESHAPED.includes(name) || name in decoderOf(state);
