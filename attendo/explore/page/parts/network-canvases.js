// What is painted in the figure of the network: streams, maps of heads, the memory, and the lines from the memory.

import { palette, pixels } from "../colour.js";
import { nextFrame, svg } from "../dom.js";

const TIME = 8; // milliseconds of drawing maps between two frames
const NEAR = 500; // pixels above and below the window in which canvases are painted
const FEW = 64; // canvases that are painted wherever they are

/**
 * `strips` and `maps` are what `NetworkFigure` has drawn; `sides` are the elements of its stacks. There may be hundreds of
 * canvases: those of a layer are painted when it comes near the window.
 */
export class NetworkCanvases extends HTMLElement {
  /** Notes which canvases a layer has. Nothing is painted before the sizes are known. */
  watch() {
    this.parts = new Map();
    for (const [kind, all] of [["strips", this.strips], ["maps", this.maps]]) {
      for (const each of all) {
        const element = each.canvas.closest(".layer, .box:not(.layer *)");
        if (!this.parts.has(element)) this.parts.set(element, { strips: [], maps: [], isNear: false, isStale: true });
        this.parts.get(element)[kind].push(each);
      }
    }
    this.watcher?.disconnect();
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.parts.get(target).isNear ||= isIntersecting;
      this.paintNear();
    }, { rootMargin: `${NEAR}px 0px` });
    for (const element of this.parts.keys()) this.watcher.observe(element);
  }

  /** Reads what painting needs to know of the layout, all at once: after a change it would be computed again. */
  measure() {
    const before = JSON.stringify(this.widths), isSmall = this.strips.length + this.maps.length <= FEW;
    this.widths = Object.fromEntries(this.network.stacks.map((stack) => [stack,
      this.sides[stack].querySelector(".strip")?.clientWidth ?? 0]));
    for (const [element, part] of this.parts) {
      const { top, bottom } = element.getBoundingClientRect();
      part.isNear ||= isSmall || top < innerHeight + NEAR && bottom > -NEAR;
      part.isStale ||= JSON.stringify(this.widths) !== before;
    }
  }

  /** All of it, with the state as it is now. */
  paint() {
    for (const part of this.parts.values()) part.isStale = true;
    this.paintNear();
    this.paintMemory(this.followed?.stack === "decoder" ? this.followed.lane : this.at);
  }

  /** A printed page has no window. */
  paintAll() {
    for (const part of this.parts.values()) part.isNear = true;
    this.paintNear();
  }

  paintNear() {
    const parts = [...this.parts.values()].filter(({ isNear, isStale }) => isNear && isStale), colours = palette();
    if (!this.widths || !parts.length) return;
    for (const part of parts) {
      part.isStale = false;
      for (const strip of part.strips.filter(({ attended }) => !attended)) {
        const { stack } = strip.box, context = prepared(strip.canvas, this.widths[stack], strip.height);
        if (context) drawBars(context, this.bars(strip, colours, this.network.largest(stack)));
      }
    }
    this.paintMaps(parts.flatMap(({ maps }) => maps.splice(0))); // a map stays as it is
  }

  /** The bars of a row of tokens: [x, y, width, height, colour, opacity]. */
  bars({ box: { norms, stack }, height }, colours, largest) {
    const { network, state, at } = this, now = state.teacher ? null : at, count = network.lanes(stack).length;
    const lane = this.widths[stack] / count, wide = Math.max(1, Math.min(lane * 0.62, 30)), room = height - 2, found = [];
    for (let n = 0; n < count; n++) {
      const old = now !== null && (stack === "encoder" ? now > 0 : n < now);
      const opacity = stack === "decoder" && now !== null && n > now ? 0.16 : old ? 0.5 : 1;
      const bar = (from, to, colour) => found.push([n * lane + (lane - wide) / 2, height - 1 - to * room, wide,
        Math.max(1, (to - from) * room), colour, opacity]);
      const share = (row) => Math.min(1, (row?.[n] ?? 0) / largest);
      if (norms.sum) {
        // The bar is as long as the sum; its upper part is the share of what the sub-layer adds.
        const sum = share(norms.sum), part = norms.output[n] / Math.max(norms.output[n] + norms.into[n], 1e-9);
        bar(0, sum * (1 - part), colours.weights[2]);
        bar(sum * (1 - part), sum, colours.other);
      } else bar(0, share(norms.output ?? norms.normed), colours.weights[norms.normed ? 2 : 3]);
      if (norms.sum && norms.normed) bar(share(norms.normed) - 1.6 / room, share(norms.normed), colours.ink);
    }
    return found;
  }

  /** The maps of the heads, some at a time. Each is as dark as its largest weight allows. */
  async paintMaps(maps) {
    const { parts } = this;
    let begin = performance.now();
    for (let n = 0; n < maps.length; n++) {
      if (performance.now() - begin > TIME) {
        await nextFrame();
        begin = performance.now();
      }
      if (parts !== this.parts) return; // drawn again meanwhile
      const { canvas, box, head } = maps[n], { values, rows, columns } = this.network.map(box, head);
      const limit = values.reduce((most, each) => Math.max(most, each), 1e-6);
      canvas.width = columns;
      canvas.height = rows;
      canvas.getContext("2d").putImageData(new ImageData(pixels(values, "weights", limit), columns, rows), 0, 0);
    }
  }

  /** Over the memory: how much a token of the target looks at each source token, as the mean of all heads. */
  paintMemory(row) {
    const strip = this.strips.find(({ attended }) => attended);
    const context = strip && prepared(strip.canvas, this.widths?.encoder, strip.height);
    if (context) drawBars(context, this.memoryBars(strip, row ?? this.at, palette()));
  }

  memoryBars({ height }, row, colours) {
    const weights = this.network.memoryWeights(row) ?? [], lane = this.widths.encoder / weights.length;
    const wide = Math.max(1, Math.min(lane * 0.62, 30));
    return [...weights].flatMap((weight, n) => [[n * lane + (lane - wide) / 2, 1, wide, height - 2, colours.faint, 1],
      [n * lane + (lane - wide) / 2, height - 1 - weight * (height - 2), wide, weight * (height - 2), colours.accent, 1]]);
  }

  /** Lines from the memory to every cross-attention that is drawn. */
  wire() {
    const from = this.querySelector('[data-part="memory"]'), area = this.getBoundingClientRect();
    const targets = [...this.querySelectorAll('[data-box$=".cross"]')];
    this.wires.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
    if (!from || !targets.length) return this.wires.replaceChildren();
    const box = from.getBoundingClientRect(), side = this.sides.decoder.getBoundingClientRect();
    const beside = side.left > box.right;
    if (!beside) return this.wires.replaceChildren();
    const x = box.right - area.left, y = box.top + box.height / 2 - area.top, middle = (x + side.left - area.left) / 2;
    const paths = targets.map((target) => {
      const found = target.getBoundingClientRect(), end = found.left - area.left, at = found.top - area.top + 22;
      const turn = Math.min(10, Math.abs(at - y) / 2), down = Math.sign(at - y) || 1;
      return svg("path", { d: `M${x} ${y}H${middle - turn}Q${middle} ${y} ${middle} ${y + down * turn}V${at
        - down * turn}Q${middle} ${at} ${middle + turn} ${at}H${end - 5}` });
    });
    const heads = targets.map((target) => {
      const found = target.getBoundingClientRect(), end = found.left - area.left, at = found.top - area.top + 22;
      return svg("path", { class: "tip", d: `M${end} ${at}l-7 -4v8z` });
    });
    this.wires.replaceChildren(...paths, ...heads);
  }
}

/** A canvas as sharp as the screen, or null where it has no room. */
function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (!width) return null;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** Bars of one colour are one path: a colour costs more than a bar. A later colour is drawn over an earlier one. */
function drawBars(context, bars) {
  const paths = new Map();
  for (const [x, y, width, height, colour, opacity] of bars) {
    const key = `${colour} ${opacity}`;
    if (!paths.has(key)) paths.set(key, { path: new Path2D(), colour, opacity });
    paths.get(key).path.rect(x, y, width, height);
  }
  for (const { path, colour, opacity } of paths.values()) {
    context.globalAlpha = opacity;
    context.fillStyle = colour;
    context.fill(path);
  }
}
