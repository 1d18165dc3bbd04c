// The models that the server offers.

import { current } from "./store.js";

let found = [];

export const setModels = (models) => { found = models; };
export const models = () => found;

/** The one that is looked at: the first unless another is named. */
export const chosen = () => found.find((model) => model.name === current().model) ?? found[0];
