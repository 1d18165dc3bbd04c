// The drawing of the whole model as a scene for the export: boxes, names, bars and maps where the page has them.

import { palette } from "../colour.js";
import { cells, line, rect, text } from "../scene.js";

const NAMES = ".box-name > span, .box-name small, .stack > h3, .layer-name, .chip span, .distribution .name, "
  + ".distribution .number, .looking";

/** A figure that is on the page. A panel that is open is left out, because its numbers are exported by its own view. */
export function networkScene(figure) {
  const area = figure.getBoundingClientRect(), colours = palette(), items = [];
  const place = (element) => {
    const { left, top, width, height } = element.getBoundingClientRect();
    return { x: left - area.left, y: top - area.top, width, height };
  };
  const all = (selector) => [...figure.querySelectorAll(selector)].filter((each) => !each.closest("module-panel"));
  for (const element of all(".layer, .box.wide, .box.row > .box-name, .chip, .distribution .track, .distribution .fill")) {
    const { x, y, width, height } = place(element), style = getComputedStyle(element);
    items.push(rect(x, y, width, height, solid(style.backgroundColor), { radius: parseFloat(style.borderRadius) || 0,
      stroke: parseFloat(style.borderTopWidth) ? solid(style.borderTopColor) : undefined }));
  }
  for (const path of figure.wires.querySelectorAll("path:not(.tip)")) {
    const length = path.getTotalLength(), count = 24;
    items.push(line(Array.from({ length: count + 1 }, (_, n) => path.getPointAtLength((n * length) / count))
      .map(({ x, y }) => [x, y]), colours.soft, { width: 1.5 }));
  }
  for (const strip of figure.strips) {
    const { x, y } = place(strip.canvas), { stack } = strip.box;
    const bars = strip.attended ? figure.memoryBars(strip, figure.at, colours) : figure.bars(strip, colours,
      figure.network.largest(stack));
    for (const [left, top, width, height, colour, opacity] of bars) items.push(rect(x + left, y + top, width, height,
      colour, { opacity }));
  }
  for (const { canvas, box, head } of figure.maps) {
    const { x, y, width, height } = place(canvas), map = figure.network.map(box, head);
    items.push(cells(x, y, width, height, map, { limit: map.values.reduce((most, each) => Math.max(most, each), 1e-6) }));
  }
  for (const element of all(NAMES)) {
    const { x, y, width, height } = place(element), style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const content = element.matches(".looking") ? [...element.children].map((each) => each.textContent).join("  ")
      : element.textContent.trim();
    if (!content || !width || style.visibility === "hidden") continue;
    const centred = element.matches(".chip span, .stack > h3");
    items.push(text(centred ? x + width / 2 : x, y + height / 2 + size * 0.36, content, { size, fill: style.color,
      weight: Number(style.fontWeight), anchor: centred ? "middle" : "start" }));
  }
  return { width: area.width, height: area.height, items };
}

/** A colour, or none where it cannot be seen. */
const solid = (colour) => (/^rgba\(.*, 0\)$|^transparent$/.test(colour) ? undefined : colour);
