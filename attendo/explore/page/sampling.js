// How sampling shapes the distribution of a token, in the browser: filters and noise of decode/strategies.py.

const MASK = (1n << 64n) - 1n;
const INCREMENT = 0x9e3779b97f4a7c15n, MULTIPLIER_1 = 0xbf58476d1ce4e5b9n, MULTIPLIER_2 = 0x94d049bb133111ebn;
const noises = new Map(); // the noise of a seed and a position does not depend on the other settings
const MOST = 64;

/** Log-probabilities of all tokens from base64: 32-bit numbers, little-endian. */
export function logProbabilities(base64) {
  const text = atob(base64), bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

/** Probabilities after temperature, top k and top p, in this order; a token that is filtered out has 0. */
export function shape(logs, { temperature = 1, top_k: k = 0, top_p: p = 1 } = {}) {
  const shaped = softmax(logs, temperature), order = ranked(shaped);
  if (k > 0 && k < order.length) {
    const least = shaped[order[k - 1]];
    for (const id of order) if (shaped[id] < least) shaped[id] = 0;
    normalise(shaped);
  }
  if (p < 1) {
    let before = 0;
    for (const id of order) {
      const share = shaped[id];
      if (before >= p) shaped[id] = 0;
      before += share;
    }
    normalise(shaped);
  }
  return shaped;
}

/** The token that `attendo generate --sample --seed` draws here: the largest log-probability plus Gumbel noise. */
export function draw(probabilities, seed, request, length) {
  const noise = noiseOf(`${seed} ${request} ${length} ${probabilities.length}`, () =>
    gumbel(keyOf(seed, request, length), probabilities.length));
  let best = -1, most = -Infinity;
  for (let id = 0; id < probabilities.length; id++) {
    const value = Math.log(probabilities[id]) + noise[id];
    if (value > most) [best, most] = [id, value];
  }
  return best;
}

/** Ids by falling probability; equal ones by id. */
export const ranked = (probabilities) => Array.from(probabilities.keys())
  .sort((a, b) => probabilities[b] - probabilities[a] || a - b);

function softmax(logs, temperature) {
  let most = -Infinity;
  for (const each of logs) if (each > most) most = each;
  const found = Float64Array.from(logs, (each) => Math.exp((each - most) / temperature));
  normalise(found);
  return found;
}

function normalise(values) {
  let sum = 0;
  for (const each of values) sum += each;
  for (let n = 0; n < values.length; n++) values[n] /= sum;
}

/** SplitMix64, as in the library: numbers wrap around at 64 bits. */
function hash(number) {
  let n = (number + INCREMENT) & MASK;
  n = ((n ^ (n >> 30n)) * MULTIPLIER_1) & MASK;
  n = ((n ^ (n >> 27n)) * MULTIPLIER_2) & MASK;
  return n ^ (n >> 31n);
}

/** Of the first answer: its row is 0. */
const keyOf = (seed, request, length) =>
  hash(hash(hash((BigInt(request) + BigInt(seed) * 0x10001n) & MASK)) + BigInt(length));

function gumbel(key, count) {
  const begin = hash(key), found = new Float64Array(count);
  for (let id = 0; id < count; id++) {
    const uniform = Math.fround(Number(hash((begin + BigInt(id)) & MASK) >> 40n) + 0.5) * 2 ** -24;
    found[id] = -Math.log(-Math.log(uniform));
  }
  return found;
}

function noiseOf(name, make) {
  if (!noises.has(name)) noises.set(name, make());
  if (noises.size > MOST) noises.delete(noises.keys().next().value);
  return noises.get(name);
}
