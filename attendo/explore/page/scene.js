// A picture as a list of shapes, painted on a canvas or written as SVG: what is exported is what was seen.

import { palette, pixels, colourOf } from "./colour.js";

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", "Hiragino Sans GB", ' +
  '"Microsoft YaHei", "Noto Sans CJK SC", "WenQuanYi Micro Hei", sans-serif';
const VECTOR = 5000; // cells that are written as rectangles; larger maps become an embedded picture

export const rect = (x, y, width, height, fill, more = {}) => ({ kind: "rect", x, y, width, height, fill, ...more });
export const text = (x, y, content, more = {}) => ({ kind: "text", x, y, content, size: 12, anchor: "start",
  fill: palette().ink, ...more });
/** `points` are [x, y]; with `curved` each pair is joined by an S-shaped curve. */
export const line = (points, stroke, more = {}) => ({ kind: "line", points, stroke, width: 1, ...more });
/** Values of rows × columns as coloured cells. */
export const cells = (x, y, width, height, map, more = {}) => ({ kind: "cells", x, y, width, height, map,
  scale: "weights", limit: 1, ...more });

const measure = document.createElement("canvas").getContext("2d");

export function textWidth(content, size = 12, weight = 400) {
  measure.font = `${weight} ${size}px ${FONT}`;
  return measure.measureText(content).width;
}

/** As much of a text as fits. */
export function fitted(content, room, size = 12) {
  if (textWidth(content, size) <= room) return content;
  const letters = [...content];
  while (letters.length > 1 && textWidth(`${letters.join("")}…`, size) > room) letters.pop();
  return `${letters.join("")}…`;
}

/** Onto a canvas, as sharp as the screen. */
export function paint(canvas, { width, height, items }, ratio = devicePixelRatio || 1) {
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  for (const item of items) PAINTERS[item.kind](context, item);
}

/** As the text of an SVG file. */
export function written({ width, height, items }) {
  const body = items.map((item) => WRITERS[item.kind](item)).join("\n");
  const size = { width, height, viewBox: `0 0 ${short(width)} ${short(height)}`, "font-family": FONT };
  const ground = rect(0, 0, width, height, palette().page);
  return tag("svg", { xmlns: "http://www.w3.org/2000/svg", ...size }, `\n${WRITERS.rect(ground)}\n${body}\n`);
}

/** Scenes below one another, each under its title. */
export function stacked(parts, gap = 24) {
  const items = [];
  let top = 0;
  for (const { title, scene } of parts) {
    if (title) items.push(text(0, top + 16, title, { size: 14, weight: 600 }));
    top += title ? 28 : 0;
    items.push(...scene.items.map((item) => shifted(item, 0, top)));
    top += scene.height + gap;
  }
  return framed({ width: Math.max(...parts.map((part) => Math.max(part.scene.width,
    textWidth(part.title ?? "", 14, 600)))), height: top - gap, items });
}

/** With room around it. */
export function framed({ width, height, items }, margin = 16) {
  return { width: width + 2 * margin, height: height + 2 * margin, items: items
    .map((item) => shifted(item, margin, margin)) };
}

/** A table as a picture: `rows` of strings under `columns` of strings. */
export function tableScene(columns, rows, size = 12) {
  const widths = columns.map((name, n) => Math.min(420, Math.max(...[name, ...rows.map((row) => row[n])]
    .map((each) => textWidth(each, size)))) + 24);
  const lefts = widths.map((_, n) => widths.slice(0, n).reduce((sum, each) => sum + each, 0));
  const { soft, line: rule } = palette();
  const width = widths.reduce((sum, each) => sum + each, 0);
  const items = columns.map((name, n) => text(lefts[n], 14, name, { size, fill: soft }));
  rows.forEach((row, n) => {
    const top = 24 + n * 22;
    items.push(line([[0, top], [width, top]], rule));
    row.forEach((each, k) => items.push(text(lefts[k], top + 15, fitted(each, widths[k] - 16, size), { size })));
  });
  return { width, height: 28 + rows.length * 22, items };
}

const shifted = (item, x, y) => (item.kind === "line"
  ? { ...item, points: item.points.map(([a, b]) => [a + x, b + y]) }
  : { ...item, x: item.x + x, y: item.y + y });

const PAINTERS = {
  rect(context, { x, y, width, height, fill, stroke, radius = 0, opacity = 1 }) {
    context.globalAlpha = opacity;
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (stroke) { context.strokeStyle = stroke; context.stroke(); }
    context.globalAlpha = 1;
  },
  text(context, { x, y, content, size, anchor, fill, weight = 400, turn = 0 }) {
    context.save();
    context.translate(x, y);
    if (turn) context.rotate((turn * Math.PI) / 180);
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = { start: "left", middle: "center", end: "right" }[anchor];
    context.fillStyle = fill;
    context.fillText(content, 0, 0);
    context.restore();
  },
  line(context, { points, stroke, width, opacity = 1, curved = false }) {
    context.globalAlpha = opacity;
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.beginPath();
    points.forEach(([x, y], n) => {
      if (!n) context.moveTo(x, y);
      else if (curved) context.bezierCurveTo((points[n - 1][0] + x) / 2, points[n - 1][1], (points[n - 1][0] + x) / 2,
        y, x, y);
      else context.lineTo(x, y);
    });
    context.stroke();
    context.globalAlpha = 1;
  },
  cells(context, item) {
    context.imageSmoothingEnabled = false;
    context.drawImage(picture(item), item.x, item.y, item.width, item.height);
  },
};

const WRITERS = {
  rect: ({ x, y, width, height, fill = "none", stroke, radius: rx, opacity }) =>
    tag("rect", { x, y, width, height, rx, fill, stroke, opacity }),
  text: ({ x, y, content, size, anchor, fill, weight, turn }) => tag("text", { x, y, "font-size": size,
    "text-anchor": anchor, fill, "font-weight": weight,
    transform: turn ? `rotate(${turn} ${short(x)} ${short(y)})` : undefined }, escaped(content)),
  line: ({ points, stroke, width, opacity, curved = false }) => tag("path", {
    d: points.map((point, n) => step(points[n - 1], point, curved)).join(""), fill: "none", stroke,
    "stroke-width": width, opacity }),
  cells(item) {
    const { map, x, y, width, height, scale, limit } = item;
    if (map.rows * map.columns > VECTOR || item.small) {
      return tag("image", { x, y, width, height, preserveAspectRatio: "none", style: "image-rendering:pixelated",
        href: picture(item).toDataURL() });
    }
    const wide = width / map.columns, high = height / map.rows;
    return [...map.values].map((value, n) => tag("rect", { x: x + (n % map.columns) * wide,
      y: y + Math.floor(n / map.columns) * high, width: wide + 0.05, height: high + 0.05,
      fill: Number.isNaN(value) ? palette().hidden : colourOf(value, scale, limit) })).join("");
  },
};

function tag(name, attributes, content = "") {
  const written = Object.entries(attributes).filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}="${typeof value === "number" ? short(value) : escaped(value)}"`);
  return `<${name}${written.join("")}>${content}</${name}>`;
}

function picture({ map, scale, limit }) {
  const canvas = document.createElement("canvas");
  canvas.width = map.columns;
  canvas.height = map.rows;
  canvas.getContext("2d").putImageData(new ImageData(pixels(map.values, scale, limit), map.columns, map.rows), 0, 0);
  return canvas;
}

function step(before, [x, y], curved) {
  if (!before) return `M${short(x)} ${short(y)}`;
  const middle = short((before[0] + x) / 2);
  return curved ? `C${middle} ${short(before[1])} ${middle} ${short(y)} ${short(x)} ${short(y)}`
    : `L${short(x)} ${short(y)}`;
}

const short = (value) => Math.round(value * 100) / 100;
// XML knows no control characters, not even escaped.
const escaped = (content) => content.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
  .replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);
