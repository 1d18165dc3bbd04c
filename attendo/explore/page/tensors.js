// The maps of a trace: half-precision numbers unpacked when they are needed, and put together for a view.

import { nextFrame } from "./dom.js";

const SPECIALS = new Set(["<s>", "</s>", "<pad>"]);
const UNKNOWN = "<unk>";
const CHUNK = 1 << 20; // letters of base64 unpacked between two frames; a multiple of 4
const unpacked = new WeakMap();
const halves = halfTable();

/** How a cell is told: the encoder predicts nothing, nor do the rows before `first`. */
export const cellKey = (site, row = 0, first = 0) => (site === "encoder_self" || row < first ? "map.from" : "map.cell");

/** "decoder.0.cross" of the site "cross" in layer 0. */
export const siteName = (site, layer) =>
  `${site.startsWith("encoder") ? "encoder" : "decoder"}.${layer}.${site === "cross" ? "cross" : "self"}`;

/** A rollout over all layers goes from predictions to the source. */
export const hasRollout = (site) => site === "cross" || site === "to_source";

/** What /trace answered, ready to be looked at. */
export async function traceOf(answer) {
  if (!unpacked.has(answer)) unpacked.set(answer, new Trace(answer, await unpack(answer.block)));
  return unpacked.get(answer);
}

export class Trace {
  constructor(answer, block) {
    this.answer = answer;
    this.block = block;
  }

  /** [layers, heads, rows, columns] */
  shape(site) {
    return this.answer.maps[site].shape;
  }

  /** The number of each layer: not all may have been asked for. */
  layers(site) {
    return this.answer.maps[site].layers;
  }

  /** Names of rows and columns, and which of them make a word. Rows are named by the token that is predicted there. */
  sides(site) {
    const { source, target, unknown } = this.answer;
    const ofSource = { pieces: told(source.pieces, unknown), words: source.words };
    const predicted = { pieces: told(target.predicted, target.unknown), words: target.words };
    const rows = { pieces: told(target.rows, target.unknown), words: target.row_words };
    const read = { pieces: told(target.read, target.unknown), words: target.read_words };
    if (site === "encoder_self") return { rows: ofSource, columns: ofSource };
    return site === "decoder_self" ? { rows, columns: read } : { rows: predicted, columns: ofSource };
  }

  /** One head, as a flat array of rows × columns. */
  head(site, layer, head) {
    const [, heads, rows, columns] = this.shape(site);
    const from = this.answer.maps[site].offset + (layer * heads + head) * rows * columns;
    const values = new Float32Array(rows * columns);
    for (let n = 0; n < values.length; n++) values[n] = halves[this.block[from + n]];
    return values;
  }

  /** How heads are shown together: "mean", "max", "rollout" or "head"; `layer` -1 means all. */
  together(site, { show, layer, head }) {
    const [layers, heads, rows, columns] = this.shape(site);
    const { rollout } = this.answer;
    if (show === "rollout" && hasRollout(site) && rollout) return Float32Array.from(rollout.values);
    const from = layer < 0 ? 0 : Math.min(layer, layers - 1);
    if (show === "head") return this.head(site, from, Math.min(Math.max(head, 0), heads - 1));
    const many = (layer < 0 ? layers : 1) * heads, size = rows * columns, found = new Float32Array(size);
    const begin = this.answer.maps[site].offset + from * heads * size;
    for (let n = 0; n < many; n++) {
      for (let k = 0, at = begin + n * size; k < size; k++, at++) {
        const value = halves[this.block[at]];
        if (show === "max") found[k] = value > found[k] ? value : found[k];
        else found[k] += value / many;
      }
    }
    return found;
  }

  /** A matrix with its labels, by piece or by word, with or without special tokens. */
  matrix(site, values, { words = false, specials = true } = {}) {
    const { rows, columns } = this.sides(site);
    const groups = [rows, columns].map((side) => grouped(side, words, specials));
    const given = site === "decoder_self" ? this.answer.first : 0;
    return { first: groups[0].groups.filter((group) => group[0] < given).length, ...pooled(values, columns.pieces.length, groups[0].groups, groups[1].groups), rowLabels: groups[0].labels,
      columnLabels: groups[1].labels };
  }
}

/** A word that the vocabulary lacks is read as <unk>: its label tells which one it was. */
export function told(pieces, unknown = []) {
  const rest = [...unknown];
  return pieces.map((piece) => (piece === UNKNOWN && rest.length ? `${rest.shift()} ${UNKNOWN}` : piece));
}

/** Weights to a word are added up; of the rows of a word the mean is taken: a row still sums to one. */
function pooled(values, width, rows, columns) {
  if (rows.length * columns.length === values.length) return { values, rows: rows.length, columns: columns.length };
  const found = new Float32Array(rows.length * columns.length);
  rows.forEach((row, i) => columns.forEach((column, j) => {
    let sum = 0;
    for (const r of row) for (const c of column) sum += values[r * width + c];
    found[i * columns.length + j] = sum / row.length;
  }));
  return { values: found, rows: rows.length, columns: columns.length };
}

function grouped({ pieces, words }, byWord, specials) {
  const groups = (byWord ? words : pieces.map((_, n) => [n])).filter((group) => specials
    || !group.every((n) => SPECIALS.has(pieces[n])));
  return { groups, labels: groups.map((group) => joined(group.map((n) => pieces[n]))) };
}

const joined = (pieces) => (pieces.length === 1 ? pieces[0] : pieces.join("").replace(/^▁/, ""));

/** The largest of each block, so that a thin line stays visible when a map is drawn smaller than it is. */
export function shrunk(values, rows, columns, most) {
  if (rows <= most && columns <= most) return { values, rows, columns };
  const height = Math.min(rows, most), width = Math.min(columns, most);
  const found = new Float32Array(height * width);
  const places = Int32Array.from({ length: columns }, (_, c) => Math.floor((c * width) / columns));
  for (let r = 0, n = 0; r < rows; r++) {
    const to = Math.floor((r * height) / rows) * width;
    for (let c = 0; c < columns; c++, n++) {
      const at = to + places[c], value = values[n];
      if (value > found[at]) found[at] = value;
    }
  }
  return { values: found, rows: height, columns: width };
}

/** An array of a block of half-precision numbers: `place` is {shape, offset}. */
export async function arrayOf(answer, { shape, offset }) {
  if (!unpacked.has(answer)) unpacked.set(answer, unpack(answer.block));
  const block = await unpacked.get(answer);
  const size = shape.reduce((product, each) => product * each, 1);
  return singles(block, offset, size);
}

/** A function that reads such arrays without waiting. */
export async function readerOf(answer) {
  if (!unpacked.has(answer)) unpacked.set(answer, unpack(answer.block));
  const block = await unpacked.get(answer);
  return ({ shape, offset }) => singles(block, offset, shape.reduce((product, each) => product * each, 1));
}

/** Numbers of a block as single precision. Float32Array.from with a function takes ten times as long. */
function singles(block, offset, size) {
  const found = new Float32Array(size);
  for (let n = 0; n < size; n++) found[n] = halves[block[offset + n]];
  return found;
}

async function unpack(text) {
  if (Uint8Array.fromBase64) return new Uint16Array(Uint8Array.fromBase64(text).buffer);
  const bytes = new Uint8Array(Math.floor((text.length * 3) / 4));
  let length = 0;
  for (let from = 0; from < text.length; from += CHUNK) {
    const part = atob(text.slice(from, from + CHUNK));
    for (let n = 0; n < part.length; n++) bytes[length++] = part.charCodeAt(n);
    if (from + CHUNK < text.length) await nextFrame();
  }
  return new Uint16Array(bytes.buffer, 0, length >> 1);
}

function halfTable() {
  const found = new Float32Array(65536), bits = new Uint32Array(found.buffer);
  for (let n = 0; n < 65536; n++) {
    const sign = (n & 0x8000) << 16, exponent = (n >> 10) & 31, fraction = n & 1023;
    if (exponent) bits[n] = sign | (exponent === 31 ? 0x7f800000 : (exponent + 112) << 23) | (fraction << 13);
    else found[n] = (sign ? -1 : 1) * fraction * 2 ** -24;
  }
  return found;
}
