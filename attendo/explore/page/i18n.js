// Every word of the page in the language of its reader.

import { continuesText } from "./models.js";
import { current } from "./store.js";
import en from "./strings/en.js";
import zh from "./strings/zh.js";

const LANGUAGES = { en, zh };

/** The chosen language, or the browser's where none was chosen. */
export function language() {
  const chosen = current().lang;
  if (chosen in LANGUAGES) return chosen;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** The text of a key, with `{names}` filled in. The output of a language model continues a text: it is no 译文. */
export function t(key, values = {}) {
  const text = LANGUAGES[language()][key];
  if (text === undefined) throw new Error(`no text for ${key}`);
  return (continuesText() ? text.replaceAll("译文", "续写") : text).replace(/\{(\w+)\}/g, (all, name) => (name in values ? String(values[name]) : all));
}

/** Between two sentences. Chinese has no spaces there. */
export const space = () => (language() === "zh" ? "" : " ");

/** Between a name and what is said of it. */
export const colon = () => (language() === "zh" ? "：" : ": ");

/** Whether there is a text: names that come from the server may be new. */
export const known = (key) => key in en;

/** What an error says to its reader. */
export function said(error) {
  if (known(`error.${error.code}`)) return t(`error.${error.code}`);
  if (error.code === undefined) return t("error.unknown"); // a mistake of ours, told in the console
  return (language() === "zh" && error.chinese) || error.message || t("error.unknown");
}
