// How one cell of an operation comes about: its formula with numbers, the terms of its sums, and the softmax of its row.

import { number } from "../dom.js";
import { told } from "../tensors.js";

const SHOWN = 8; // terms of a sum; the others are added up
const DIGITS = 4;
const unpacked = new WeakMap();

/** The tensors of an answer of /calculation, with the names of rows and columns. */
export class Calculation {
  static of(answer) {
    if (!unpacked.has(answer)) unpacked.set(answer, new Calculation(answer));
    return unpacked.get(answer);
  }

  constructor(answer) {
    this.answer = answer;
    const bytes = Uint8Array.from(atob(answer.block), (letter) => letter.charCodeAt(0));
    this.block = new Float32Array(bytes.buffer);
  }

  has(name) {
    return name in this.answer.tensors;
  }

  shape(name) {
    return this.answer.tensors[name].shape;
  }

  /** All values of a tensor, or the number of one cell. */
  values(name) {
    const { offset, shape } = this.answer.tensors[name];
    return this.block.subarray(offset, offset + shape.reduce((product, size) => product * size, 1));
  }

  at(name, row, column = 0) {
    const { offset, shape } = this.answer.tensors[name];
    return this.block[offset + row * (shape[1] ?? 1) + column];
  }

  row(name, row) {
    const width = this.shape(name)[1];
    return this.values(name).subarray(row * width, (row + 1) * width);
  }

  column(name, column) {
    return Array.from({ length: this.shape(name)[0] }, (_, row) => this.at(name, row, column));
  }

  /** Names of rows or columns: tokens, or numbers of dimensions. */
  labels({ axis, first, count, pieces }) {
    const { unknown, pieces: sides } = this.answer;
    if (axis === "vocabulary") return pieces;
    if (axis === "ids") return ["id"];
    if (axis === "none") return Array(count).fill("");
    if (axis === "dimensions") return Array.from({ length: count }, (_, n) => String(first + n));
    return told(sides[axis], axis === "source" ? unknown.source : unknown.target).slice(first, first + count);
  }
}

/**
 * The blocks that explain the cell at a row and column of the window: {tex} is a line, {terms} a sum of products,
 * {softmax} the exponentials of a row. `own` marks the block whose result is the cell.
 */
export function explain(found, row, column) {
  const { kind } = found.answer;
  return (EXPLAINERS[kind] ?? EXPLAINERS.value)(found, row, column, found.at("result", row, column));
}

const EXPLAINERS = {
  linear: (found, row, column, value) => [products(found, row, column, value, { own: true })],
  sigmoid(found, row, column, value) {
    const sum = -Math.log(1 / value - 1);
    return [products(found, row, column, sum), line(`\\sigma(z) = \\frac{1}{1 + e^{-z}} = ${tex(value)}`, true)];
  },
  attention: ofScore,
  mixture(found, row, column, value) {
    const { head_scale: scale } = found.answer.numbers;
    const terms = sum({ labels: labelsOf(found, "weights"), left: Array.from(found.row("weights", row)),
      right: found.column("right", column), total: value / (scale || 1), symbols: ["a_j", "v_j"], own: scale === 1,
      scaled: !scale });
    return [terms, ...(scale === 1 ? [] : [line(`g \\cdot \\sum_j a_j v_j = ${tex(scale)} \\cdot ${
      signed(terms.terms.sum)} = ${tex(value)}`, true)]), softmax(found, row, null)];
  },
  sum(found, row, column, value) {
    const [left, right] = [found.at("left", row, column), found.at("right", row, column)];
    const { factor, width } = found.answer.numbers, sumTex = `${tex(left)} + ${signed(right)} = ${tex(value)}`;
    if (!factor) return [line(sumTex, true)];
    return [line(`\\sqrt{${width}} \\cdot E + P = ${tex(factor)} \\cdot ${signed(left / factor)} + ${signed(right)}`),
      line(`= ${sumTex}`, true)];
  },
  scale(found, row, column, value) {
    const { factor, width } = found.answer.numbers, left = found.at("left", row, column);
    return [line(`${width ? `\\sqrt{${width}}` : tex(factor)} \\cdot ${signed(left)} = ${tex(value)}`, true)];
  },
  elementwise(found, row, column, value) {
    const x = found.at("left", row, column), { formula } = found.answer;
    const written = { relu: `\\max(0, ${tex(x)}) = `, positive_cells: `\\max(0, ${tex(x)}) = `,
      gelu: `${tex(x)} \\cdot \\Phi(${tex(x)}) = `, silu: `${tex(x)} \\cdot \\sigma(${tex(x)}) = `,
      gelu_tanh: `\\text{gelu}(${tex(x)}) = ` }[formula] ?? "";
    return [line(`${written}${tex(value)}`, true)];
  },
  gate(found, row, column, value) {
    const [gate, x] = [found.at("left", row, column), found.at("right", row, column)];
    const bent = x === 0 ? null : value / x;
    return [line(`f(H_\\text{gate}) = f(${tex(gate)})${bent === null ? "" : ` = ${tex(bent)}`}`),
      line(`f(H_\\text{gate}) \\cdot H_\\text{value} = ${bent === null ? "" : `${signed(bent)} \\cdot `}${signed(x)} = ${
        tex(value)}`, true)];
  },
  rotation(found, row, column, value) {
    const [first, second, angle] = ["left", "right", "angles"].map((name) => found.at(name, row, column));
    const { first: from, total } = found.answer.columns, upper = from + column >= total / 2;
    const [sine, cosine] = [`\\sin ${tex(angle)}`, `\\cos ${tex(angle)}`];
    return [line(upper ? `${signed(first)} ${sine} + ${signed(second)} ${cosine} = ${tex(value)}`
      : `${signed(first)} ${cosine} - ${signed(second)} ${sine} = ${tex(value)}`, true)];
  },
  sinusoid(found, row, column, value) {
    const angle = found.at("left", row, column), { first, total } = found.answer.columns, at = first + column;
    const even = found.answer.formula === "sinusoids" ? at % 2 === 0 : at < total / 2;
    return [line(`\\${even ? "sin" : "cos"} ${tex(angle)} = ${tex(value)}`, true)];
  },
  outer: (found, row, column, value) => [line(`pos \\cdot \\omega_i = ${whole(found.at("left", row))} \\cdot ${
    tex(found.at("right", column), 6)} = ${tex(value)}`, true)],
  layer_norm(found, row, column, value) {
    const x = Array.from(found.row("left", row)), mean = total(x) / x.length;
    const variance = total(x.map((each) => (each - mean) ** 2)) / x.length;
    const own = x[found.answer.columns.first + column];
    const [gain, bias] = [found.at("gain", column), found.at("bias", column)];
    return [line(`\\mu = \\frac{1}{${x.length}} \\sum_i x_i = ${tex(mean)}`),
      line(`\\sigma^2 = \\frac{1}{${x.length}} \\sum_i (x_i - \\mu)^2 = ${tex(variance)}, \\; \\epsilon = ${
        scientific(found.answer.numbers.epsilon)}`),
      line(`\\frac{x - \\mu}{\\sqrt{\\sigma^2 + \\epsilon}} \\cdot \\gamma + \\beta`),
      line(`= \\frac{${tex(own)} - ${
        signed(mean)}}{${tex(Math.sqrt(variance + found.answer.numbers.epsilon))}} \\cdot ${signed(gain)} + ${
        signed(bias)} = ${tex(value)}`, true)];
  },
  rms_norm(found, row, column, value) {
    const x = Array.from(found.row("left", row)), mean = total(x.map((each) => each ** 2)) / x.length;
    const own = x[found.answer.columns.first + column], root = Math.sqrt(mean + found.answer.numbers.epsilon);
    return [line(`\\text{mean}(x^2) = \\frac{1}{${x.length}} \\sum_i x_i^2 = ${tex(mean)}`),
      line(`\\frac{x}{\\sqrt{\\text{mean}(x^2) + \\epsilon}} \\cdot \\gamma = \\frac{${tex(own)}}{${tex(root)}} \\cdot ${
        signed(found.at("gain", column))} = ${tex(value)}`, true)];
  },
  lookup: (found, row, column, value) => [line(`E[${whole(found.at("ids", row))}]_{${
    found.answer.columns.first + column}} = ${tex(value)}`, true)],
  recurrence(found, row, column, value) {
    const [forget, candidate, before] = ["left", "right", "before"].map((name) => found.at(name, row, column));
    return [line(`f \\cdot c_{t - 1} + (1 - f) \\cdot u = ${tex(forget)} \\cdot ${signed(before)} + ${
      tex(1 - forget)} \\cdot ${signed(candidate)} = ${tex(value)}`, true)];
  },
  probabilities(found, row, column) {
    const labels = found.labels(found.answer.columns), [largest, sums] = [found.at("largest", row),
      found.at("total", row)];
    const rows = labels.map((label, n) => ({ label, score: found.at("left", row, n), own: n === column }));
    return [softmaxOf(rows, largest, sums, found.answer.columns.total)];
  },
  value: (found, row, column, value) => [line(found.answer.formula === "tokens" || found.answer.formula === "buckets"
    ? whole(value) : tex(value, found.answer.formula === "frequencies" ? 6 : DIGITS), true)],
};

/** From query and key to the weight: product, scale, mask, softmax. */
function ofScore(found, row, column, value) {
  const { numbers, formula } = found.answer, product = found.at("products", row, column);
  const masked = found.at("masked", row, column), scaled = product * numbers.scale;
  const scoreTex = numbers.by_setting ? `${tex(numbers.scale)} \\cdot ${signed(product)}`
    : `\\frac{${tex(product)}}{\\sqrt{${numbers.width}}}`;
  const biased = found.has("bias");
  const own = { products: "products", scores: "scores", scores_by_scale: "scores", biased_scores: "bias",
    softmax: "softmax" }[formula] ?? "mask";
  const terms = sum({ labels: dimensions(found.shape("left")[1]), left: Array.from(found.row("left", row)),
    right: Array.from(found.row("right", column)), total: product, symbols: ["q_i", "k_i"], own: own === "products" });
  const hidden = !Number.isFinite(masked), score = found.at("scores", row, column);
  return [terms, line(`S = ${scoreTex} = ${tex(scaled)}`, own === "scores"),
    ...(biased ? [line(`S + U = ${tex(scaled)} + ${signed(found.at("bias", row, column))} = ${tex(score)}`,
      own === "bias")] : []),
    line(hidden ? `S + M = ${tex(score)} - \\infty = -\\infty` : `S + M = ${tex(score)} + 0 = ${tex(masked)}`,
      own === "mask"),
    softmax(found, row, column, own === "softmax")];
}

/** x · column of W + b. */
function products(found, row, column, value, more = {}) {
  return sum({ labels: dimensions(found.shape("left")[1]), left: Array.from(found.row("left", row)),
    right: found.column("right", column), added: found.has("bias") ? found.at("bias", column) : null, total: value,
    symbols: ["x_i", "w_i"], ...more });
}

/** The largest terms of a sum of products, and the sum of the others. What is shown adds up to what is shown. */
function sum({ labels, left, right, added = null, total: given, symbols, own = false, scaled = false }) {
  const all = left.map((each, n) => ({ label: labels[n], left: each, right: right[n], value: each * right[n] }))
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const shown = all.slice(0, SHOWN), rest = all.slice(SHOWN), others = total(rest.map((each) => each.value));
  const sums = scaled ? total(all.map((each) => each.value)) : given;
  const values = [...shown.map((each) => each.value), ...(rest.length ? [others] : []), ...(added === null ? []
    : [added])];
  const written = consistent(values, sums);
  return { own, terms: { symbols, sum: sums,
    rows: shown.map((each, n) => [each.label, number(each.left, DIGITS), number(each.right, DIGITS), written[n]]),
    rest: rest.length ? [rest.length, written[shown.length]] : null,
    added: added === null ? null : written.at(-1), total: number(sums, DIGITS) } };
}

/** The softmax of a row of masked scores. */
function softmax(found, row, column, own = false) {
  const scores = Array.from(found.row("masked", row)), labels = labelsOf(found, "masked");
  const largest = Math.max(...scores), sums = total(scores.map((each) => Math.exp(each - largest)));
  return softmaxOf(scores.map((score, n) => ({ label: labels[n], score, own: n === column })), largest, sums,
    scores.length, own);
}

/** `count` is the number of all scores: those that were not sent belong to the rest of the sum. */
function softmaxOf(rows, largest, sums, count, own = true) {
  const all = rows.map((each) => ({ ...each, power: Math.exp(each.score - largest) }))
    .sort((a, b) => b.power - a.power || b.own - a.own);
  const shown = all.filter((each, n) => n < SHOWN || each.own);
  const rest = count - shown.length, others = Math.max(0, sums - total(shown.map((each) => each.power)));
  const powers = consistent([...shown.map((each) => each.power), ...(rest ? [others] : [])], sums);
  const shares = consistent([...shown.map((each) => each.power / sums), ...(rest ? [others / sums] : [])], 1);
  return { own, softmax: { largest: number(largest, DIGITS), rows: shown.map((each, n) => ({ label: each.label,
    own: each.own, cells: [Number.isFinite(each.score) ? number(each.score, DIGITS) : "−∞", powers[n], shares[n]] })),
    rest: rest ? [rest, powers.at(-1), shares.at(-1)] : null, total: [number(sums, DIGITS), number(1, DIGITS)] } };
}

/** Rounded so that what is shown adds up to the shown total: the numbers nearest to the next step give way. */
export function consistent(values, sums, digits = DIGITS) {
  const unit = 10 ** digits, exact = values.map((each) => each * unit), found = exact.map(Math.round);
  let missing = Math.round(sums * unit) - total(found);
  const order = exact.map((each, n) => [each - found[n], n]).sort((a, b) => (b[0] - a[0]) * Math.sign(missing || 1));
  for (let n = 0; missing && n < order.length; n++, missing -= Math.sign(missing)) found[order[n][1]] += Math.sign(
    missing);
  return found.map((each) => number(each / unit, digits));
}

const line = (written, own = false) => ({ tex: written, own });
const total = (values) => values.reduce((sums, each) => sums + each, 0);
const dimensions = (count) => Array.from({ length: count }, (_, n) => String(n));
const whole = (value) => String(Math.round(value));

function labelsOf(found, name) {
  const { operation, pieces, unknown } = found.answer;
  const axis = operation.startsWith("encoder") || operation.includes(".cross.") ? "source" : "read";
  return told(pieces[axis], axis === "source" ? unknown.source : unknown.target).slice(0, found.shape(name)[1]);
}

const tex = (value, digits = DIGITS) => number(value, digits).replace("−", "-");
const signed = (value) => (value < 0 && Number(value.toFixed(DIGITS)) !== 0 ? `(${tex(value)})` : tex(value));

function scientific(value) {
  const power = Math.round(Math.log10(value));
  return Math.abs(10 ** power - value) < value * 1e-6 ? `10^{-${-power}}` : String(value);
}
