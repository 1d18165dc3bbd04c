// What a person calls the tensors of a trace: "decoder.0.cross.scores" is the scores of the cross-attention of layer 0.

import { known, t } from "./i18n.js";

/** The name of an attention or feed-forward network: "decoder.0.cross". */
export function siteTitle(site) {
  const [stack, layer, kind] = site.split(".");
  return `${t(`stack.${stack}`)} · ${t("layer.n", { n: layer })} · ${t(`kind.${kind}`)}`;
}

/** The name of any operation. A part that the page does not know keeps the name that it has in a trace. */
export function operationTitle(name) {
  const parts = name.split(".");
  const end = (key) => (known(`step.${key}`) ? t(`step.${key}`) : key);
  if (parts.length === 4) return `${siteTitle(name)} · ${end(parts[3])}`;
  if (parts.length === 3) return siteTitle(name);
  return `${known(`stack.${parts[0]}`) ? t(`stack.${parts[0]}`) : parts[0]} · ${end(parts[1])}`;
}

/** The name of a layer or of a sub-layer that is changed. */
export function moduleTitle(name) {
  const [stack, layer, kind] = name.split(".");
  if (!known(`stack.${stack}`) || !/^\d+$/.test(layer) || (kind && !known(`kind.${kind}`))) return name;
  return kind ? siteTitle(name) : `${t(`stack.${stack}`)} · ${t("layer.n", { n: layer })}`;
}

/** Its last part only, as a step of its row. */
export const stepTitle = (name) => {
  const end = name.slice(name.lastIndexOf(".") + 1);
  return known(`step.${end}`) ? t(`step.${end}`) : end;
};
