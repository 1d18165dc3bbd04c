// The boxes of a network in the order of computation, and what each of them shows of one forward pass.

import { readerOf, told } from "../tensors.js";

const BLANK = "·"; // of ctc
const LAYERS = 4; // a stack with more of them is folded: the first and the last one stay open

export class Network {
  static async of(answer) {
    return new Network(answer, await readerOf(answer));
  }

  constructor(answer, read) {
    this.answer = answer;
    this.read = read;
    this.maps = new Map();
    this.isPre = answer.norm === "pre";
    this.isParallel = answer.kind !== "autoregressive";
    this.first = answer.first; // lanes of the decoder before its first prediction: a source or prompt in the same row
    this.pieces = {
      source: told(answer.source.pieces, answer.unknown?.source),
      read: told(answer.target.read, answer.unknown?.target),
      predicted: told(answer.target.predicted, answer.unknown?.target).map((piece) => piece || BLANK),
    };
    this.formulas = new Map(answer.operations.map((each) => [each.name, each]));
    this.stacks = Object.entries(answer.stacks).filter(([, layers]) => layers.length).map(([name]) => name);
    this.boxes = this.stacks.flatMap((stack) => this.boxesOf(stack));
    this.byId = new Map(this.boxes.map((box) => [box.id, box]));
  }

  /** Names of the tokens in the lanes of a stack. */
  lanes(stack) {
    return this.pieces[stack === "encoder" ? "source" : "read"];
  }

  get length() {
    return this.pieces.predicted.length;
  }

  /** The token that is predicted in a state of the page. */
  step({ step }) {
    return Math.min(Math.max(step, 0), this.length - 1);
  }

  /** The lane of the decoder that predicts this token. */
  lane(state) {
    return this.first + this.step(state);
  }

  /** The token that is held, {stack, lane}: `encoder.2` in the address. */
  followed({ follow }) {
    const [stack, lane] = follow.split("."), at = Number(lane);
    return this.stacks.includes(stack) && Number.isInteger(at) && at >= 0 && at < this.lanes(stack).length ? { stack,
      lane: at } : null;
  }

  /** The norm of a full bar in a stack. A few much longer vectors, as those of </s> often are, are cut. */
  largest(stack) {
    this.full ??= {};
    return (this.full[stack] ??= this.fullBar(stack));
  }

  fullBar(stack) {
    const all = this.boxes.filter((box) => box.stack === stack && box.norms).flatMap(({ norms }) =>
      Object.values(norms).flatMap((row) => [...row])).sort((a, b) => a - b);
    return Math.max(1e-9, Math.min((all[Math.floor(all.length * 0.9)] ?? 1) * 1.25, all.at(-1) ?? 1));
  }

  boxesOf(stack) {
    const { answer } = this, side = stack === "encoder" ? "source" : "target";
    const make = (id, part, operations, more = {}) => ({ id, part, stack, layer: null,
      operations: operations.filter((name) => this.formulas.has(name)), ...more });
    const named = (...ends) => ends.map((end) => `${side}.${end}`);
    const input = this.rows({ output: answer.inputs[side] });
    const adds = this.formulas.has(`${side}.positions`);
    const first = [make(`${side}.tokens`, "tokens", named("ids")),
      make(`${side}.embedding`, "embedding", [...named("embedding", "scaled", "copied"), ...(adds ? [] : named("sum", "input"))],
        adds ? {} : { norms: input }),
      ...(adds ? [make(`${side}.positions`, "positions", named("frequencies", "angles", "positions", "sum", "input"),
        { norms: input })] : [])];
    const layers = answer.stacks[stack].flatMap((layer, at) => Object.entries(layer).flatMap(([kind, sub]) => {
      const n = answer.layers[stack][at]; // not all may have been traced
      return this.sublayer(`${stack}.${n}.${kind}`, sub, make).map((box) => ({ ...box, layer: n }));
    }));
    const last = this.formulas.get(`${stack}.output`), final = last && last.formula !== "last_layer"
      ? [make(`${stack}.output`, "final", [`${stack}.output`], { norms: this.rows({ output:
        answer.outputs[stack] }) })] : [];
    const top = stack === "encoder" ? [make("memory", "memory", [])]
      : [make("output.logits", "linear", ["output.scaled", "output.logits"]),
        make("output.probabilities", "softmax", ["output.probabilities"])];
    return [...first, ...layers, ...final, ...top];
  }

  /** With post-norm as in the paper: sub-layer, then Add & Norm. With pre-norm: Norm, sub-layer, Add. */
  sublayer(site, sub, make) {
    const norms = this.rows(sub.norms), before = { site, kind: sub.kind };
    const main = make(site, sub.kind, [...this.formulas.keys()].filter((name) => name.startsWith(`${site}.`)
      && !name.endsWith(".residual") && !name.endsWith(".norm")), { ...before, maps: sub.maps,
      causal: !this.isParallel && this.answer.masked });
    const into = norms.residual;
    if (!this.isPre) return [main, make(`${site}.norm`, "add_norm", [`${site}.residual`, `${site}.norm`],
      { ...before, norms: { output: norms.output, sum: into, into: norms.input, normed: norms.norm } })];
    return [make(`${site}.norm`, "norm", [`${site}.norm`], { ...before, norms: { normed: norms.norm } }), main,
      make(`${site}.residual`, "add", [`${site}.residual`], { ...before, norms: { output: norms.output, sum: into, into: norms.input } })];
  }

  rows(places) {
    return Object.fromEntries(Object.entries(places).filter(([, place]) => place).map(([name, place]) =>
      [name, this.read(place)]));
  }

  /** The small map of one head, or the mean of all: {values, rows, columns}. */
  map({ maps }, head) {
    const place = head === null ? maps.mean : maps.heads, [rows, columns] = place.shape.slice(-2);
    const size = rows * columns, at = head === null ? place.offset : place.offset + head * size;
    if (!this.maps.has(at)) this.maps.set(at, { values: this.read({ shape: [size], offset: at }), rows, columns });
    return this.maps.get(at);
  }

  /** Tokens that a row of the mean map looks at most: [[token, weight]]. */
  strongest(box, row, count = 2) {
    const { values, rows, columns } = this.map(box, null), total = box.maps.shape;
    const at = Math.floor((row * rows) / total[1]), pieces = this.columns(box), own = values.subarray(at * columns,
      (at + 1) * columns);
    return Array.from(own.keys()).sort((a, b) => own[b] - own[a]).slice(0, count).filter((n, k) => !k
      || own[n] >= 0.0005).map((n) => [pieces[Math.floor((n * total[2]) / columns)], own[n]]);
  }

  /** Names of the tokens that are looked at. */
  columns({ stack, site }) {
    return stack === "encoder" || site.endsWith(".cross") ? this.pieces.source : this.pieces.read;
  }

  /** How much each source token is looked at in a row of the target, over all layers. */
  memoryWeights(row) {
    const boxes = this.boxes.filter((box) => box.maps && box.site.endsWith(".cross"));
    if (!boxes.length) return null;
    const count = this.pieces.source.length, found = new Float32Array(count);
    for (const box of boxes) {
      const { values, rows, columns } = this.map(box, null), at = Math.floor((row * rows) / box.maps.shape[1]);
      for (let n = 0; n < count; n++) found[n] += values[at * columns + Math.floor((n * columns) / count)]
        / boxes.length;
    }
    return found;
  }

  /** Layers of a stack that are drawn in full. `unfolded` is "all" or a list of layers as in `encoder.3`. */
  openLayers(stack, unfolded) {
    const layers = this.answer.layers[stack], chosen = unfolded.split(",");
    return new Set(layers.filter((n) => layers.length <= LAYERS || n === layers[0] || n === layers.at(-1)
      || chosen.includes("all") || chosen.includes(`${stack}.${n}`)));
  }

  get canFold() {
    return Object.values(this.answer.stacks).some((layers) => layers.length > LAYERS);
  }
}
