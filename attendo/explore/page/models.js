// The models that the server offers.

import { whole } from "./dom.js";
import { t } from "./i18n.js";
import { current } from "./store.js";

let found = [];

export const setModels = (models) => { found = models; };
export const models = () => found;

const AT_ONCE = ["masked", "ctc", "graph"];

/** Whether the model that is looked at predicts all tokens at once. */
export const isParallel = () => AT_ONCE.includes(chosen()?.config?.kind);

/** Whether it reads its source, or its prompt, in the row of the decoder. */
export const isDecoderOnly = () => chosen()?.encoder_layers === 0;

/** Whether it has no source, and continues a text. */
export const continuesText = () => isDecoderOnly() && !chosen().config?.prefix_lm;

/** The attention of the model that has a map. `to_source` is a part of decoder_self. */
export const sites = () => (isDecoderOnly() ? ["decoder_self", "to_source"] : ["encoder_self", "decoder_self", "cross"]);

/** The attention that can be masked and edited. */
export const editedSites = () => sites().filter((site) => site !== "to_source");

/** How the rows of a map are named. */
export const rowsKey = (site) => ({ encoder_self: "map.rows.encoder", to_source: "map.rows.to_source",
  decoder_self: isDecoderOnly() ? "map.rows.given" : "map.rows" }[site] ?? "map.rows");

/** Where predictions look at the source. */
export const mainSite = () => sites().at(-1);

/** A model that translates the same languages token by token, to stand beside; null if the server has none. */
export const besideModel = () => found.find((model) => model.config?.kind === "autoregressive"
  && model.encoder_layers > 0 && model.direction === chosen().direction) ?? null;

/** The one that is looked at: the first unless another is named. */
export const chosen = () => found.find((model) => model.name === current().model) ?? found[0];

/** Names of its checkpoints by step; the last one is "", the final model. */
export const checkpointsOf = () => [...(chosen()?.checkpoints ?? []), ""];

/** "step-00001400" as people write it; the final model and checkpoints named in another way have their name. */
export function stepName(name) {
  const found = stepOf(name);
  return found === null ? name || t("page.final") : t("timeline.step", { step: whole(found) });
}

export const stepOf = (name) => (/^step-\d+$/.test(name) ? Number(name.slice(5)) : null);
