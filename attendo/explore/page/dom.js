// Elements made from plain values: whatever is a string becomes text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (`onclick: f`), styles (`style: {width: "3px"}`) and children. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A piece as it can be seen: blanks and control characters get a sign. */
export function visible(piece) {
  if (piece !== "" && piece.trim() === "") return "␣".repeat(piece.length);
  return piece.replace(/[\u0000-\u001f]/g, (each) => String.fromCharCode(0x2400 + each.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const written = value.toFixed(digits);
  return written.replace("-", Number(written) === 0 ? "" : "−"); // what rounds to nothing has no sign
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return value > 0 && Number(value.toFixed(digits)) !== 0 ? `+${number(value, digits)}` : number(value, digits);
}

export function percent(value) {
  if (value === null || value === undefined) return "–";
  const share = value * 100;
  if (share > 0 && share < 0.1) return share < 0.01 ? "< 0.01 %" : `${share.toFixed(2)} %`;
  return `${share >= 99.95 || share === 0 ? share.toFixed(0) : share.toFixed(1)} %`;
}

export const whole = (value) => Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");

/** A share as a bar with its number. */
export const meter = (share) => h("span", { class: "meter" }, track(share), percent(share));

export const track = (share) =>
  h("span", { class: "track" }, h("span", { class: "fill", style: { width: `${Math.min(1, share) * 100}%` } }));

/** What follows waits until the browser has drawn a frame, so that long work never freezes the page. */
export const nextFrame = () => new Promise((resolve) => {
  // A hidden tab draws no frames: the timer goes on without one.
  const timer = setTimeout(resolve, 100);
  requestAnimationFrame(() => { clearTimeout(timer); setTimeout(resolve); });
});

/** Children of which there may be hundreds: the first at once, the others a few at a time between two frames. */
export async function fill(parent, children, first = 80) {
  parent.append(...children.slice(0, first));
  for (let from = first; from < children.length; from += first) {
    await nextFrame();
    if (!parent.isConnected) return;
    parent.append(...children.slice(from, from + first));
  }
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value" || name === "checked" || name === "data") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined
    && child !== false));
  return element;
}
