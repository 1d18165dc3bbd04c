// The page and its answers in one file that opens from disk: modules become data, answers become JSON.

import { ask, recordedWhile, stream } from "./api.js";
import { ofStream } from "./requests.js";
import { current } from "./store.js";
import { View } from "./view.js";
import { shownViews, VIEWS } from "./views/all.js";

// Nothing is loaded. Modules are data addresses, and pictures are made by the page itself.
const POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:";
const IMPORT = /(from\s*|import\s*\(\s*|import\s*)"(\.{1,2}\/[^"]+)"/g;

/** The text of the file. What the views of the current sentence need is asked for first. */
export async function wholePage() {
  const answers = await recordedWhile(gather);
  const [index, icon, ...styles] = await Promise.all(["index.html", "icon.svg", "style.css", "views.css",
    "whole-model.css"].map(file));
  const modules = await collect("main.js");
  const imports = Object.fromEntries([...modules].map(([name, source]) =>
    [name, `data:text/javascript;base64,${base64(source)}`]));
  const head = [
    `<meta http-equiv="Content-Security-Policy" content="${POLICY}">`,
    `<link rel="icon" href="data:image/svg+xml;base64,${base64(icon)}">`,
    `<style>${styles.join("\n").replaceAll("</", "<\\/")}</style>`,
    `<script type="application/json" id="recorded" data-state="${escaped(location.hash.slice(1))}">${inline(answers)}</script>`,
    `<script type="importmap">${inline({ imports })}</script>`,
    `<script type="module">import "main.js";</script>`,
  ].join("\n");
  return index.replace(/\s*<link[^>]*>/g, "").replace(/\s*<script[^>]*><\/script>/g, "")
    .replace("</head>", () => `${head}\n</head>`);
}

/** What every view asks for. One that fails here fails in the file too, and says that it was not saved. */
async function gather() {
  const state = current(), quietly = (work) => work.catch(() => null);
  await quietly(ask("/models"));
  await quietly(drained(stream("/answer", ofStream(state))));
  for (const name of shownViews()) {
    const unseen = new VIEWS[name]();
    await quietly(View.loaded(unseen, state));
    if (unseen.frames) await quietly(unseen.frames(state));
    if (unseen.details) await quietly(unseen.details(state));
  }
}

async function drained(events) {
  for await (const _ of events);
}

/** Every module that is reached, by its path; its imports are named by path too, for a data address has no folder. */
async function collect(name, found = new Map()) {
  if (found.has(name)) return found;
  found.set(name, "");
  const source = await file(name), wanted = [];
  const folder = new URL(name, "http://page/");
  found.set(name, source.replace(IMPORT, (_, before, path) => {
    const target = new URL(path, folder).pathname.slice(1);
    wanted.push(target);
    return `${before}"${target}"`;
  }));
  for (const each of wanted) await collect(each, found);
  return found;
}

async function file(name) {
  const response = await fetch(`/page/${name}`);
  if (!response.ok) throw new Error(`${name}: HTTP ${response.status}`);
  return response.text();
}

/** JSON that cannot end the element it stands in. */
const inline = (value) => JSON.stringify(value).replaceAll("<", "\\u003c");

const escaped = (text) => text.replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);

function base64(text) {
  let found = "";
  for (const byte of new TextEncoder().encode(text)) found += String.fromCharCode(byte);
  return btoa(found);
}
