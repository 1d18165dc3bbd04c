// The key of a server that wants one: asked for when it is missing, kept until the tab is closed.

import { h } from "./dom.js";
import { t } from "./i18n.js";

const PLACE = "attendo.key";
let key = remembered();
let asking = null;

export const currentKey = () => key;

/** The header that brings the key, where there is one. */
export const credentials = () => (key ? { Authorization: `Bearer ${key}` } : {});

/** Asks for another key than the one refused, once for all who wait. Whether there is one now. */
export function askedForKey(refused) {
  if (key !== refused) return Promise.resolve(true); // somebody else was told it meanwhile
  asking ??= asked(refused).finally(() => { asking = null; });
  return asking;
}

function asked(refused) {
  const note = refused ? h("p", { class: "note", id: "key-wrong", role: "alert" }, t("key.wrong")) : null;
  // Headers can hold no other letters.
  const field = h("input", { id: "key", type: "password", required: true, pattern: "[!-~]+", autocomplete: "off",
    title: t("key.letters"), "aria-describedby": note ? "key-why key-wrong" : "key-why" });
  const form = h("form", { method: "dialog" }, h("h2", { id: "key-title" }, t("key.title")),
    h("p", { class: "note", id: "key-why" }, t("key.why")), note,
    h("label", { class: "field wide" }, h("span", {}, t("key.label")), field),
    h("div", { class: "row" }, h("button", { class: "primary", value: "given" }, t("key.go")),
      h("button", { type: "button", onclick: () => dialog.close("") }, t("key.cancel"))));
  const dialog = h("dialog", { class: "key", "aria-labelledby": "key-title" }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const given = dialog.returnValue === "given";
    if (given) remember(field.value);
    dialog.remove();
    resolve(given);
  }));
}

// With storage turned off the key is forgotten when the page is loaded again, and nothing else is lost.
function remembered() {
  try {
    return sessionStorage.getItem(PLACE) ?? "";
  } catch {
    return "";
  }
}

function remember(given) {
  key = given;
  try {
    sessionStorage.setItem(PLACE, given);
  } catch { /* it stays in memory */ }
}
