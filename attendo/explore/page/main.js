// The frame of the page: which model, which language, which view.

import { ask, offline, savedViews } from "./api.js";
import { h, whole } from "./dom.js";
import { exporter } from "./export.js";
import { colon, language, t } from "./i18n.js";
import { chosen, editedSites, mainSite, models, setModels, sites } from "./models.js";
import { button, select } from "./parts/controls.js";
import { go } from "./parts/page-tour.js";
import "./parts/training-step.js";
import { current, redraw, subscribe, update } from "./store.js";
import { complaint } from "./view.js";
import "./views/translate.js";
import { shownViews, VIEWS } from "./views/all.js";

const THEMES = ["", "light", "dark"];

class Page extends HTMLElement {
  async connectedCallback() {
    setTheme(remembered("theme"));
    subscribe((changed) => this.follow(changed));
    document.documentElement.toggleAttribute("data-saved", Boolean(savedViews));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw("theme"));
    this.frame();
    holdPlace(this, this.main);
    await this.begin();
  }

  async begin() {
    try {
      setModels((await ask("/models")).models);
    } catch (error) {
      this.main.replaceChildren(complaint(error, () => this.begin()));
      return;
    }
    if (!current().text) update({ text: chosen().samples?.[0] ?? "" }, { quiet: true });
    this.settle();
    this.frame();
    this.show();
  }

  /** A view or an attention that the model does not have gives way to one that it has. */
  settle() {
    if (!models().length) return;
    const { view, site, mask_site, edit_site } = current(), edited = editedSites();
    update({ view: shownViews().includes(view) ? view : shownViews()[0], site: sites().includes(site) ? site : mainSite(),
      mask_site: edited.includes(mask_site) ? mask_site : "decoder_self",
      edit_site: edited.includes(edit_site) ? edit_site : edited.at(-1) }, { quiet: true });
  }

  frame() {
    document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
    document.title = t("page.title");
    const focus = document.activeElement?.id;
    this.tabs ??= h("nav", { class: "tabs" });
    this.main ??= h("main", { id: "main", tabindex: "-1" });
    this.bar ??= models().length ? h("translate-bar") : null;
    this.top ??= h("header", { class: "top" });
    this.steps ??= h("training-step");
    if (!offline && models().length) this.tour ??= h("page-tour");
    this.strange ??= h("div", { class: "strange", role: "status" });
    this.top.replaceChildren(h("h1", {}, "attendo"), ...this.modelChoice(),
      h("div", { class: "row end" }, this.settings()));
    this.strange.replaceChildren(...this.strangers());
    this.tabs.setAttribute("aria-label", t("page.views"));
    this.tabs.hidden = shownViews().length < 2; // of a saved page
    this.tabs.replaceChildren(...(models().length ? shownViews() : []).map((name) => this.tab(name)));
    const skip = h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault();
      this.main.focus(); } }, t("page.skip"));
    if (!this.main.isConnected || (this.bar && !this.bar.isConnected)) this.replaceChildren(skip, this.top,
      this.strange, ...(this.bar ? [this.bar] : []), this.tabs, ...(this.tour ? [this.tour] : []), this.main);
    else this.firstElementChild.replaceWith(skip);
    // Not replaced with the rest: it may be dragged right now.
    if (!this.steps.isConnected && models().length) this.strange.before(this.steps);
    if (focus) document.getElementById(focus)?.focus();
  }

  tab(name) {
    const active = current().view === name;
    return h("button", { type: "button", id: `tab-${name}`, "aria-current": active ? "page" : null,
      onclick: () => update({ view: name }) }, t(`${name}.title`));
  }

  modelChoice() {
    const found = chosen();
    if (!found) return [];
    // An exported model tells no sizes.
    const facts = found.parameters === null ? "" : t("page.facts", { parameters: whole(found.parameters),
      layers: `${found.encoder_layers}+${found.decoder_layers}`, heads: found.heads });
    return [
      models().length > 1 ? select("model", t("page.model"), found.name,
        models().map((each) => [each.name, each.name])) : h("span", { class: "model" }, found.name),
      h("span", { class: "facts" }, [found.direction, facts].filter(Boolean).join(" · ")),
    ].filter(Boolean);
  }

  /** What the address names and this server does not have: somebody else's link, or a model that is gone. */
  strangers() {
    const { model, checkpoint } = current(), found = chosen();
    if (!found) return [];
    const told = (field, text) => h("p", { class: "notice" }, text, " ",
      button(t("page.drop"), () => update({ [field]: "" }), { class: "link", id: `drop-${field}` }));
    return [
      model && model !== found.name ? told("model", t("page.noModel", { name: model, shown: found.name })) : null,
      checkpoint && !found.checkpoints?.includes(checkpoint) ? told("checkpoint", t("page.noCheckpoint",
        { name: checkpoint, shown: found.name })) : null,
    ].filter(Boolean);
  }

  settings() {
    const theme = document.documentElement.dataset.theme ?? "";
    return [
      offline ? h("span", { class: "facts" }, t("page.offline")) : null,
      offline || !models().length ? null : button(t("tour.title"), () => go(current().tour || 1), { id: "tour" }),
      exporter(() => this.main.firstElementChild),
      button(t(`theme.${theme || "auto"}`), () => this.turnTheme(), { id: "theme", title: t("theme.title"),
        "aria-label": `${t("theme.title")}${colon()}${t(`theme.${theme || "auto"}`)}` }),
      button(language() === "zh" ? "English" : "中文", () => update({ lang: language() === "zh" ? "en" : "zh" },
        { quiet: true }), { id: "language", lang: language() === "zh" ? "en" : "zh-CN" }),
    ].filter(Boolean);
  }

  turnTheme() {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "") + 1) % THEMES.length];
    setTheme(next);
    remember("theme", next);
    redraw("theme");
  }

  follow(changed) {
    if (["view", "model", "site", "mask_site", "edit_site"].some((name) => changed.has(name))) this.settle();
    if (["lang", "theme", "view", "model"].some((name) => changed.has(name))) this.frame();
    else if (changed.has("checkpoint")) this.strange.replaceChildren(...this.strangers());
    if (changed.has("view")) this.show();
  }

  show() {
    if (models().length) this.main.replaceChildren(new VIEWS[current().view]());
    reveal(this.tabs.querySelector("[aria-current]"), this.tabs);
  }
}

/**
 * Scrolls with the view while the parts above it change their height, such as an answer that takes another line.
 * Browsers do this by themselves (scroll anchoring), but not in a frame in which the view is drawn anew.
 */
function holdPlace(page, view) {
  const place = () => view.getBoundingClientRect().top + scrollY;
  let before = place();
  const observer = new ResizeObserver(() => {
    const now = place(), isAbove = before < scrollY;
    if (isAbove && now !== before) scrollBy({ top: now - before, behavior: "instant" });
    before = now;
  });
  const follow = () => [...page.children].filter((each) => each !== view).forEach((each) => observer.observe(each));
  new MutationObserver(follow).observe(page, { childList: true });
  follow();
}

/** Scrolls a row until this part of it is seen. After scrollIntoView the Tab key would begin there, not at the top. */
function reveal(part, row) {
  if (!part) return;
  const inner = part.getBoundingClientRect(), outer = row.getBoundingClientRect();
  row.scrollLeft += Math.min(0, inner.left - outer.left) + Math.max(0, inner.right - outer.right);
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// A page opened from disk, or with storage turned off, forgets the theme and nothing else.
function remembered(name) {
  try {
    return localStorage.getItem(`attendo.${name}`) ?? "";
  } catch {
    return "";
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`attendo.${name}`, value);
  } catch { /* nothing is lost but the choice */ }
}

customElements.define("attendo-page", Page);
