// The names, shapes and norms of the boxes of a network, in words.

import { number } from "../dom.js";
import { t } from "../i18n.js";

/** The name of a box, as in the figure of the paper. */
export function titleOf({ part, site, kind, stack, causal }) {
  if (part === "attention") return t(site.endsWith(".cross") ? "home.part.cross" : stack === "encoder" || causal === false
    ? "home.part.self" : "home.part.masked");
  if (kind && ["feed_forward", "recurrence"].includes(part)) return t(`home.part.${part}`);
  return t(`home.part.${part}`);
}

export const labelOf = (box) => [t(`stack.${box.stack}`), box.layer === null ? "" : t("layer.n", { n: box.layer }),
  titleOf(box)].filter(Boolean).join(" · ");

/** Shapes at an arrow. While generating, the decoder reads one token: the keys and values of the others are cached. */
export function shapeOf(network, box, { teacher, step }) {
  const { answer } = network, width = answer.d_model, rows = network.lanes(box.stack).length;
  // Before the first prediction it reads its source or prompt at once.
  const lane = network.lane({ step }), read = lane === network.first ? lane + 1 : 1;
  const count = box.stack === "encoder" || teacher ? rows : read;
  const keys = box.stack === "encoder" || box.site?.endsWith(".cross") ? network.pieces.source.length
    : teacher ? rows : lane + 1;
  if (box.part === "attention") {
    const [heads, , d] = network.formulas.get(`${box.site}.queries`).shape;
    return `Q [${heads}, ${count}, ${d}] · K, V [${heads}, ${keys}, ${d}]`;
  }
  if (box.part === "feed_forward") {
    const inner = network.formulas.get(`${box.site}.bent`)?.shape[1];
    return inner ? `${width} → ${inner} → ${width}` : `[${count}, ${width}]`;
  }
  if (["linear", "softmax"].includes(box.part)) return `[${teacher ? network.length : 1}, ${answer.vocabulary}]`;
  if (box.part === "final" && box.stack === "decoder") return `[${teacher ? network.length : 1}, ${width}]`;
  return `[${count}, ${width}]`;
}

/** Norms of a followed token behind each box of its stack, for a reader of the screen and for the caption. */
export function normsOf(network, { stack, lane }) {
  return network.boxes.filter((box) => box.stack === stack && box.norms).map((box) => [labelOf(box),
    number((box.norms.normed ?? box.norms.sum ?? box.norms.output)[lane], 1)]);
}
