// The ten stations of the tour: what each shows, and which guess is right. Some answers are computed by the model itself.

import { ask } from "./api.js";
import { headsAs } from "./store.js";
import { checkpointsOf, chosen } from "./models.js";
import { ofAblation, ofMask, ofRepresentations } from "./requests.js";
import { shownViews } from "./views/all.js";

/** What a station begins from: changes of the one before are undone. */
const CLEAN = { heads: "", edits: "", beside: "", checkpoint: "", target: "", prefix: "", forced: "", step: 0,
  mask_off: false, module: "", cell: "", teacher: false };

/**
 * `guesses` is the number of guesses, `right` the one that is right or a function that asks the model, `needs` what a
 * model must have. Texts are `tour.NAME.question`, `tour.NAME.0` ..., `tour.NAME.told`.
 */
const STATIONS = [
  { name: "memory", view: "home", guesses: 3, right: 0, needs: "encoder" },
  { name: "softmax", view: "calculator", guesses: 3, right: 0, state: () => ({ operation: "decoder.0.self.weights",
    cell: "3,0" }) }, // a row with several tokens: the first one sees only <s>
  { name: "heads", view: "heads", guesses: 2, right: 1, state: () => ({ site: upper() }) },
  { name: "order", view: "alignment", guesses: 3, right: 0, needs: "encoder", state: () => ({ site: "cross",
    show: "mean", layer: -1 }) },
  { name: "mask", view: "mask", guesses: 3, state: () => ({ mask_site: "decoder_self", mask_off: true }),
    async right(state, signal) {
      const { loss_usual: usual, loss_unmasked: open } = await ask("/mask", ofMask(state), signal);
      return Math.abs(open - usual) < 0.0005 ? 2 : open < usual ? 0 : 1;
    } },
  { name: "candidates", view: "steps", guesses: 3, right: 2, state: () => ({ step: 1 }) },
  { name: "beam", view: "tree", guesses: 2, right: 1, state: () => ({ kind: "beam" }) },
  { name: "switch", view: "ablation", guesses: 2, needs: "encoder", state: () => ({ heads: lastHeads() }),
    right: answerChanges },
  { name: "switchSelf", view: "ablation", guesses: 2, needs: "oneRow", state: () => ({ heads: lastHeads() }),
    right: answerChanges },
  { name: "lens", view: "representations", guesses: 2, state: () => ({ rep: "lens" }),
    async right(state, signal) {
      const { lens, target } = await ask("/representations", ofRepresentations(state), signal);
      const row = lens.at(-2) ?? [], found = row.filter(({ top: [best] }, at) => best.piece === target.predicted[at]);
      return found.length * 2 > row.length ? 0 : 1;
    } },
  { name: "training", view: "heads", guesses: 3, right: 0, needs: "checkpoints", state: () => ({ site: upper(),
    checkpoint: checkpointsOf()[0] }) },
];

const hasEncoder = () => chosen().encoder_layers > 0;
const upper = () => (hasEncoder() ? "cross" : "decoder_self");
const NEEDS = { encoder: hasEncoder, oneRow: () => !hasEncoder(), checkpoints: () => checkpointsOf().length > 1 };

/** The heads of the last attention of the decoder, all off. */
function lastHeads() {
  const { decoder_layers: layers, heads } = chosen(), kind = hasEncoder() ? "cross" : "self";
  return headsAs({ [`decoder.${layers - 1}.${kind}`]: Object.fromEntries(Array.from({ length: heads }, (_, n) =>
    [n, 0])) });
}

/** The guess about switched-off heads that is right: 0 if the answer stays the same. */
async function answerChanges(state, signal) {
  const { before, after } = await ask("/ablate", ofAblation(state), signal);
  return before.text === after.text ? 0 : 1;
}

/** The stations of the chosen model. */
export const stations = () => STATIONS.filter(({ view, needs }) => shownViews().includes(view)
  && (NEEDS[needs]?.() ?? true));

/** The state that a station shows; the number of a station counts from 1. */
export const stateOf = (number) => {
  const { view, state } = stations()[number - 1];
  return { ...CLEAN, kind: "greedy", ...state?.(), view, tour: number };
};
