// Curves over the steps of training: a scene for the screen and for the export.

import { palette } from "../colour.js";
import { line, rect, text } from "../scene.js";

const MOST = 600; // points of a curve that are drawn; of more, the mean of each stretch
const LEFT = 52, BOTTOM = 26, TOP = 10, RIGHT = 14;

/** `series`: [{name, points: [[x, y], ...], colour, dots}]. */
export function chartOf(series, width, height, { logarithmic = false, at = null } = {}) {
  const { line: rule, soft, ink } = palette();
  const kept = series.map((each) => ({ ...each, points: thinned(each.points
    .filter(([, y]) => Number.isFinite(y) && (!logarithmic || y > 0))) }));
  const all = kept.flatMap((each) => each.points);
  if (!all.length) return { width, height, items: [] };
  const y = (value) => (logarithmic ? Math.log10(value) : value);
  const [low, high] = spread(all.map((point) => y(point[1]))), last = Math.max(...all.map(([x]) => x), 1);
  const place = ([x, value]) => [LEFT + (x / last) * (width - LEFT - RIGHT),
    TOP + (1 - (y(value) - low) / (high - low)) * (height - TOP - BOTTOM)];
  const items = [];
  for (const tick of ticks(low, high, logarithmic)) {
    const [, at] = place([0, tick]);
    items.push(line([[LEFT, at], [width - RIGHT, at]], rule), text(LEFT - 8, at + 4, shortened(tick),
      { anchor: "end", size: 11, fill: soft }));
  }
  for (const tick of ticks(0, last)) items.push(text(place([tick, 10 ** 0])[0], height - 6, shortened(tick),
    { anchor: "middle", size: 11, fill: soft }));
  if (at !== null && at <= last) {
    const [x] = place([at, 10 ** 0]);
    items.push(line([[x, TOP], [x, height - BOTTOM]], ink));
  }
  for (const { points, colour, dots } of kept) {
    const placed = points.map(place);
    items.push(line(placed, colour, { width: 1.8 }));
    if (dots) for (const [a, b] of placed) items.push(rect(a - 3, b - 3, 6, 6, colour, { radius: 3 }));
  }
  return { width, height, items };
}

function thinned(points) {
  if (points.length <= MOST) return points;
  const size = points.length / MOST;
  return Array.from({ length: MOST }, (_, n) => {
    const part = points.slice(Math.floor(n * size), Math.floor((n + 1) * size));
    return [part[part.length - 1][0], part.reduce((sum, [, y]) => sum + y, 0) / part.length];
  });
}

function spread(values) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || 1) * 0.04;
  return [low - room, high + room];
}

function ticks(low, high, logarithmic = false) {
  if (logarithmic) {
    const powers = [];
    for (let n = Math.ceil(low); n <= Math.floor(high); n++) powers.push(10 ** n);
    return powers.length > 1 ? powers : [10 ** low, 10 ** ((low + high) / 2), 10 ** high];
  }
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough)),
    step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

const shortened = (value) => (value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(0)
  : String(Number(value.toPrecision(3)))).replace("-", "−");
