// Colours of what is drawn on a canvas: one hue for weights, two for differences, in light and dark.

const LIGHT = {
  page: "#ffffff", ink: "#14262e", soft: "#566971", line: "#d5dee2", faint: "#eef3f5",
  accent: "#0279a9", other: "#b4530a", third: "#6b5a9c", hidden: "#e6eaec",
  weights: ["#f2f8fb", "#b8d9ed", "#7abae0", "#409ac9", "#0279a9", "#005983", "#003b5a"],
  signs: ["#8a3c00", "#c96a1e", "#eeb787", "#f6f7f8", "#9ccbe6", "#2a86bd", "#004a78"],
};

const DARK = {
  page: "#121b1f", ink: "#e3edf1", soft: "#9db0b8", line: "#2f3e45", faint: "#1a262b",
  accent: "#3ca8cd", other: "#f0a060", third: "#b3a4e6", hidden: "#20292d",
  weights: ["#192529", "#1d4352", "#21637a", "#2a85a4", "#3ca8cd", "#68caee", "#a8e9ff"],
  signs: ["#ffb877", "#d9883f", "#7d4d22", "#20292d", "#1d5f80", "#3ca8dd", "#a8e4ff"],
};

const EQUAL = 0.179; // luminance on which black and white have the same contrast, 4.58 (WCAG 2)
const tables = new Map();
const system = matchMedia("(prefers-color-scheme: dark)"); // asked for every cell: it must not be looked up each time

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

export const palette = () => (isDark() ? DARK : LIGHT);

/** 256 colours as [r, g, b, ...]; `scale` is "weights" (0 to 1) or "signs" (-1 to 1). */
export function table(scale) {
  const key = `${scale} ${isDark()}`;
  if (!tables.has(key)) tables.set(key, steps(palette()[scale]));
  return tables.get(key);
}

/** The place of a value in such a table. */
export function place(value, scale, limit) {
  const share = scale === "signs" ? (value / limit + 1) / 2 : value / limit;
  return Math.round(Math.min(Math.max(share, 0), 1) * 255);
}

export function colourOf(value, scale = "weights", limit = 1) {
  const at = place(value, scale, limit) * 3;
  const [red, green, blue] = table(scale).slice(at, at + 3);
  return `rgb(${red},${green},${blue})`;
}

/** Black or white, whichever has the higher contrast on a value's colour. It is at least 4.58 on every colour. */
export function inkOn(value, scale = "weights", limit = 1) {
  const at = place(value, scale, limit) * 3;
  return luminance(table(scale).subarray(at, at + 3)) > EQUAL ? "#000000" : "#ffffff";
}

/** Pixels [r, g, b, a, ...] of a matrix; what is NaN is hidden. */
export function pixels(values, scale, limit) {
  const colours = table(scale);
  const [red, green, blue] = rgb(palette().hidden);
  const found = new Uint8ClampedArray(values.length * 4);
  for (let n = 0; n < values.length; n++) {
    const value = values[n];
    if (Number.isNaN(value)) found.set([red, green, blue, 255], n * 4);
    else {
      const at = place(value, scale, limit) * 3;
      found[n * 4] = colours[at];
      found[n * 4 + 1] = colours[at + 1];
      found[n * 4 + 2] = colours[at + 2];
      found[n * 4 + 3] = 255;
    }
  }
  return found;
}

function steps(stops) {
  const found = new Uint8Array(256 * 3);
  const colours = stops.map(rgb);
  for (let n = 0; n < 256; n++) {
    const at = (n / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c++) found[n * 3 + c] = Math.round(colours[low][c] + (
      colours[low + 1][c] - colours[low][c]) * (at - low));
  }
  return found;
}

/** Relative luminance as WCAG 2 defines it. */
function luminance(colour) {
  const [red, green, blue] = [...colour].map((each) => (each <= 10 ? each / 3294 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
