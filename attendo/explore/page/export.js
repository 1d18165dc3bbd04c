// What is seen, as a file: SVG, PNG, JSON, or the whole page with its answers in one HTML file.

import { offline } from "./api.js";
import { palette } from "./colour.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { chosen } from "./models.js";
import { button } from "./parts/controls.js";
import { paint, rect, stacked, written } from "./scene.js";
import { current } from "./store.js";

/** A menu; `view` gives the view that is shown. */
export function exporter(view) {
  const note = h("p", { class: "note", role: "status" });
  const entry = (kind, make) => button(t(`export.${kind}`), () => attempt(make, note), { id: `export-${kind}` });
  const menu = h("details", { class: "menu", onkeydown: (event) => { if (event.key === "Escape") { menu.open = false;
    menu.firstElementChild.focus(); } } },
    h("summary", { id: "export" }, t("export.title")),
    h("div", { class: "menu-body" },
      entry("svg", () => save(view(), "svg", "image/svg+xml", written(pictureOf(view())))),
      entry("png", () => savePng(view(), pictureOf(view()))),
      entry("json", () => save(view(), "json", "application/json", JSON.stringify(jsonOf(view()), null, 1))),
      offline ? null : entry("html", async () => save(view(), "html", "text/html",
        await (await import("./offline.js")).wholePage())),
      entry("link", () => navigator.clipboard.writeText(location.href)), note));
  menu.addEventListener("focusout", (event) => { if (event.relatedTarget
    && !menu.contains(event.relatedTarget)) menu.open = false; });
  return menu;
}

function pictureOf(view) {
  if (!view?.picture || view.data == null || view.failed) throw new Error("nothing is drawn");
  return stacked([{ title: caption(view), scene: view.picture(view.data, current()) }], 0);
}

/** What a file shows: the model, its checkpoint and changed heads, the view, and the layer and head in it. */
function caption(view) {
  const { checkpoint, heads } = current();
  return [chosen()?.name, checkpoint, t(`${current().view}.title`), view.subject?.(), heads].filter(Boolean).join(" · ");
}

function jsonOf(view) {
  if (!view || view.data == null || view.failed) throw new Error("nothing is drawn");
  return { model: chosen()?.name, checkpoint: current().checkpoint || null, shows: caption(view), view: current().view,
    state: current(), data: view.exported ? view.exported(view.data) : view.data };
}

async function attempt(make, note) {
  note.textContent = t("export.working");
  try {
    await make();
    note.textContent = t("export.done");
  } catch (error) {
    console.warn(error);
    note.textContent = t("export.failed");
  }
}

async function savePng(view, scene) {
  const canvas = document.createElement("canvas");
  // A browser draws no canvas beyond some size: a very large picture gets fewer pixels instead of none.
  const ratio = Math.min(2, 8000 / Math.max(scene.width, scene.height));
  paint(canvas, { ...scene, items: [rect(0, 0, scene.width, scene.height, palette().page), ...scene.items] }, ratio);
  download(view, "png", await new Promise((resolve) => canvas.toBlob(resolve, "image/png")));
}

const save = (view, ending, type, content) => download(view, ending, new Blob([content], { type }));

/** `attendo-demo-alignment-Cross-Layer-1-Head-0`: letters and digits of all languages stay. */
const nameOf = (view) => ["attendo", chosen()?.name, current().checkpoint, current().view, view?.data != null
  && !view.failed ? view.subject?.() : ""].filter(Boolean).join("-").replace(/[^\p{L}\p{N}.]+/gu, "-").slice(0, 120)
  .replace(/^-+|-+$/g, "");

function download(view, ending, blob) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: `${nameOf(view)}.${ending}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
