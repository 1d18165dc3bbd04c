// Formulas: the part of TeX that the catalogue uses, as MathML, which browsers typeset by themselves.

const MATHML = "http://www.w3.org/1998/Math/MathML";
const SIGNS = { cdot: "·", odot: "⊙", leftarrow: "←", infty: "∞", times: "×", to: "→", approx: "≈", le: "≤", in: "∈",
  dots: "…", ";": "\u2003", "{": "{", "}": "}", sum: "∑" };
const LETTERS = { mu: "μ", sigma: "σ", gamma: "γ", beta: "β", epsilon: "ε", theta: "θ", omega: "ω", pi: "π", Phi: "Φ" };
const FUNCTIONS = ["exp", "max", "sin", "cos", "tanh", "ln"];
const TOKEN = /\\(?:[a-zA-Z]+|.)|[0-9.]+|\s+|[^\s]/gu;

/** `maths("\\frac{Q K^T}{\\sqrt{d_k}}")` gives a `<math>` element. */
export function maths(tex, { block = false, label } = {}) {
  const tokens = tex.match(TOKEN)?.filter((token) => token.trim() !== "") ?? [];
  const texts = [...tex.matchAll(/\\text\{([^}]*)\}/g)].map((found) => found[1]);
  const body = m("mrow", {}, ...row(tokens, texts));
  return m("math", { display: block ? "block" : null, displaystyle: "true", "aria-label": label }, body);
}

function m(tag, attributes = {}, ...children) {
  const element = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Reads until the closing brace of a group, or to the end. `texts` are the contents of \text, in order. */
function row(tokens, texts) {
  const found = [];
  while (tokens.length && tokens[0] !== "}") {
    const sign = tokens[0] === "-" && (!found.length || /^[=+·(−-]$/.test(found.at(-1).textContent));
    found.push(scripts(atom(tokens, texts), tokens, texts));
    if (sign) found.at(-1).setAttribute("form", "prefix"); // a minus sign, with no space after it
  }
  return found;
}

function group(tokens, texts) {
  if (tokens[0] !== "{") return atom(tokens, texts);
  tokens.shift();
  const inside = row(tokens, texts);
  tokens.shift();
  return inside.length === 1 ? inside[0] : m("mrow", {}, ...inside);
}

function scripts(base, tokens, texts) {
  const found = {};
  while (tokens[0] === "_" || tokens[0] === "^") found[tokens.shift()] = group(tokens, texts);
  if (found._ && found["^"]) return m("msubsup", {}, base, found._, found["^"]);
  if (found._) return m("msub", {}, base, found._);
  return found["^"] ? m("msup", {}, base, found["^"]) : base;
}

function atom(tokens, texts) {
  const token = tokens.shift(), name = token.slice(1);
  if (token === "{") {
    tokens.unshift(token);
    return group(tokens, texts);
  }
  if (token === "\\text") {
    while (tokens.shift() !== "}"); // the words, which were read before their spaces went
    return m("mtext", {}, texts.shift());
  }
  if (token === "\\frac") return m("mfrac", {}, group(tokens, texts), group(tokens, texts));
  if (token === "\\sqrt") return m("msqrt", {}, group(tokens, texts));
  if (token.startsWith("\\")) {
    if (name in LETTERS) return m("mi", {}, LETTERS[name]);
    return FUNCTIONS.includes(name) ? m("mi", {}, name) : name === ";" ? m("mspace", { width: "1em" })
      : m("mo", {}, SIGNS[name] ?? name);
  }
  if (/^[0-9.]+$/.test(token)) return m("mn", {}, token);
  if (/^[\p{L}\p{M}]/u.test(token)) {
    // A circumflex of normalised vectors follows its letter as a character of its own.
    while (/^\p{M}/u.test(tokens[0] ?? "")) return m("mi", {}, token + tokens.shift());
    return m("mi", {}, token);
  }
  return m("mo", /[()[\]|]/.test(token) ? { stretchy: "false" } : {}, token === "-" ? "−" : token);
}
