// The graph of a model that predicts all tokens at once: vertices from left to right, links, and the chosen path.

import { palette } from "../colour.js";
import { h, number, percent, svg, visible } from "../dom.js";
import { t } from "../i18n.js";
import { fitted, framed, line, rect, text, textWidth } from "../scene.js";

const MARGIN = 14, GAP = 18, DOT = 7, STEP = 24, LANE = 62, TALL = 40, WIDEST = 150;
const LEAST = 0.01; // how often a random path visits what is drawn with its token
const CURVE = 12; // points of a link in a picture

/** Which vertices are named, and where: those of the path in one line, the others above and below it. */
export function layoutOf({ vertices, links }) {
  const ends = { "-1": MARGIN - GAP, 0: MARGIN - GAP, 1: MARGIN - GAP }, boxes = [];
  let x = MARGIN;
  for (const vertex of vertices) {
    if (!vertex.chosen && vertex.pass_probability < LEAST) {
      x += boxes.at(-1).label ? 2 * DOT : DOT;
      boxes.push({ vertex, x, y: 0, width: 0, lane: 0, label: "" });
      continue;
    }
    const label = fitted(nameOf(vertex, vertices), WIDEST, 14);
    const width = Math.max(42, textWidth(label, 14, 650) + 18), lane = vertex.chosen ? 0 : ends[-1] <= ends[1] ? -1 : 1;
    x = Math.max(x + STEP, ends[lane] + GAP + width / 2);
    ends[lane] = x + width / 2;
    boxes.push({ vertex, x, y: MARGIN + TALL / 2 + (lane + 1) * LANE, width, lane, label });
  }
  const taken = links.map((link) => ({ ...link, taken: vertices[link.start].pass_probability * link.probability }));
  return { boxes, links: taken.filter((link) => link.chosen || link.taken >= LEAST)
    .sort((one, other) => one.chosen - other.chosen || one.taken - other.taken),
    width: Math.ceil(Math.max(x, ...Object.values(ends)) + MARGIN), height: 2 * LANE + TALL + 2 * MARGIN + 20 };
}

export const nameOf = (vertex, vertices) => (vertex.id !== null ? visible(vertex.piece)
  : t(vertex.position === vertices.length - 1 ? "parallel.end" : "parallel.start"));

/** The drawing with a line below it that says what is pointed at. Arrow keys move from vertex to vertex. */
export class GraphDrawing {
  constructor(data) {
    this.data = data;
    this.layout = layoutOf(data);
    this.named = this.layout.boxes.filter((box) => box.label);
    this.readout = h("output", { class: "readout" }, t("parallel.hint"));
    const { width, height, links, boxes } = this.layout, axis = height - 10;
    this.marks = this.named.map((box, n) => this.markOf(box, n));
    this.svg = svg("svg", { class: "graph", role: "listbox", "aria-orientation": "horizontal",
      "aria-label": t("parallel.graphLabel"), width, height, viewBox: `0 0 ${width} ${height}`,
      onkeydown: (event) => this.pressed(event) },
      svg("g", { "aria-hidden": "true" }, links.map((link) => this.linkOf(link)),
        boxes.map((box) => (box.label ? svg("text", { x: box.x, y: axis, class: "position", "text-anchor": "middle" },
          String(box.vertex.position)) : svg("circle", { class: "dot", cx: box.x, cy: axis - 4, r: 2 })))),
      this.marks);
  }

  elements() {
    return [h("div", { class: "graph-scroll", tabindex: "0", role: "region", "aria-label": t("parallel.graphLabel") },
      this.svg), this.readout];
  }

  markOf(box, n) {
    const { vertex } = box;
    return svg("g", { class: `vertex${vertex.chosen ? " chosen" : ""}`, role: "option", tabindex: n ? -1 : 0,
      "aria-selected": "false", "aria-label": this.described(vertex),
      transform: `translate(${box.x - box.width / 2} ${box.y - TALL / 2})`,
      onpointerenter: () => this.point(n), onpointerleave: () => this.point(-1),
      onfocus: () => this.point(n), onblur: () => this.point(-1) },
      svg("rect", { width: box.width, height: TALL, rx: 7 }),
      svg("text", { x: box.width / 2, y: 18, class: "piece", "text-anchor": "middle" }, box.label),
      svg("text", { x: box.width / 2, y: 33, class: "share", "text-anchor": "middle" }, share(vertex)));
  }

  linkOf(link) {
    const { boxes } = this.layout, d = curve(boxes[link.start], boxes[link.end], link.chosen);
    const say = () => { this.readout.textContent = t("parallel.link", { start: link.start, end: link.end,
      probability: number(link.probability), taken: percent(link.taken) }); };
    link.mark = svg("path", { class: `link${link.chosen ? " chosen" : ""}`, d,
      style: link.chosen ? {} : { opacity: String(shade(link)) } });
    // A wider one that is not seen, so that a thin line can be pointed at.
    return [link.mark, svg("path", { class: "near", d, onpointerenter: () => { link.mark.classList.add("pointed");
      say(); }, onpointerleave: () => { link.mark.classList.remove("pointed");
      this.readout.textContent = t("parallel.hint"); } })];
  }

  described(vertex) {
    const next = this.layout.links.filter((link) => link.start === vertex.position)
      .sort((one, other) => other.probability - one.probability).slice(0, 4);
    return [t("parallel.vertex", { position: vertex.position, share: percent(vertex.pass_probability) }),
      vertex.top.map((each) => `${visible(each.piece)} ${percent(each.probability)}`).join(", "),
      next.length ? t("parallel.next", { list: next.map((link) => `${link.end} (${percent(link.probability)})`)
        .join(", ") }) : ""].filter(Boolean).join(" · ");
  }

  point(n) {
    const vertex = this.named[n]?.vertex;
    this.svg.classList.toggle("pointing", Boolean(vertex));
    this.marks.forEach((mark, at) => mark.setAttribute("aria-selected", String(at === n)));
    for (const link of this.layout.links) link.mark.classList.toggle("pointed",
      Boolean(vertex) && (link.start === vertex.position || link.end === vertex.position));
    this.readout.textContent = vertex ? this.described(vertex) : t("parallel.hint");
  }

  /** Left and right to the neighbours, up and down along the chosen path. */
  pressed(event) {
    const at = this.marks.indexOf(document.activeElement);
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at < 0 || !move) return;
    event.preventDefault();
    let next = at + move;
    if (["ArrowUp", "ArrowDown"].includes(event.key)) while (this.named[next] && !this.named[next].vertex.chosen)
      next += move;
    if (!this.marks[next]) return;
    this.marks.forEach((mark, n) => mark.setAttribute("tabindex", n === next ? 0 : -1));
    this.marks[next].focus();
  }

  scene() {
    const { boxes, links, width, height } = this.layout, { accent, ink, soft, page } = palette();
    const items = links.map((link) => line(pointsOf(boxes[link.start], boxes[link.end], link.chosen),
      link.chosen ? accent : ink, { width: link.chosen ? 3 : 1.4, opacity: link.chosen ? 1 : shade(link) }));
    for (const { vertex, x, y, width: wide, label } of boxes) {
      if (!label) {
        items.push(rect(x - 2, height - 16, 4, 4, soft, { radius: 2 }));
        continue;
      }
      items.push(rect(x - wide / 2, y - TALL / 2, wide, TALL, page, { radius: 7,
        stroke: vertex.chosen ? accent : soft }),
        text(x, y - 2, label, { size: 14, anchor: "middle", weight: vertex.chosen ? 650 : 400 }),
        text(x, y + 13, share(vertex), { size: 11, anchor: "middle", fill: soft }),
        text(x, height - 10, String(vertex.position), { size: 11, anchor: "middle", fill: soft }));
    }
    return framed({ width, height, items });
  }
}

const share = (vertex) => `${Math.round(vertex.pass_probability * 100)}%`;
const shade = (link) => Math.max(0.15, link.taken ** 0.6);

/** The four points of a link: straight on the path, bent around what lies between on the same line. */
function control(from, to, chosen) {
  const [x, u] = [from.x + from.width / 2, to.x - to.width / 2], middle = (x + u) / 2;
  if (chosen || from.lane !== to.lane) return [[x, from.y], [middle, from.y], [middle, to.y], [u, to.y]];
  const bend = (from.lane > 0 ? 1 : -1) * (TALL / 2 + 12), out = Math.min(24, (u - x) / 2);
  return [[x, from.y], [x + out, from.y + bend], [u - out, to.y + bend], [u, to.y]];
}

function curve(from, to, chosen) {
  const [first, ...rest] = control(from, to, chosen);
  return `M${first.join(" ")}C${rest.map((point) => point.join(" ")).join(" ")}`;
}

function pointsOf(from, to, chosen) {
  const points = control(from, to, chosen);
  return Array.from({ length: CURVE + 1 }, (_, n) => {
    const s = n / CURVE, weights = [(1 - s) ** 3, 3 * s * (1 - s) ** 2, 3 * s * s * (1 - s), s ** 3];
    return [0, 1].map((axis) => points.reduce((sum, point, k) => sum + weights[k] * point[axis], 0));
  });
}
