// What all views share: ask when the question has changed, draw when the picture has, and say so when it fails.

import { wasCancelled } from "./api.js";
import { h, nextFrame } from "./dom.js";
import { said, t } from "./i18n.js";
import { choicesOf } from "./parts/choices.js";
import { reading } from "./reading.js";
import { decides, held } from "./requests.js";
import { current, subscribe } from "./store.js";

const DRAWN_BY_ALL = ["lang", "theme", "models"];

/**
 * A view names the state that it asks for (`asks`) and the state that it only draws (`draws`).
 * `load(state, signal)` gives the data, `content(data, state)` the elements, `picture(data, state)` what is exported.
 * A view that asks for a target is given the final model's answer at a checkpoint, unless it `holds` nothing.
 */
export class View extends HTMLElement {
  static asks = [];
  static draws = [];
  static holds = true;

  connectedCallback() {
    this.end = subscribe((changed) => this.follow(changed));
    this.whenResized = new ResizeObserver(([entry]) => this.resized(entry.contentRect.width));
    this.whenResized.observe(this);
    this.refresh();
  }

  disconnectedCallback() {
    this.end();
    this.whenResized.disconnect();
    this.controller?.abort();
  }

  /** What `load` gives, with the target that is held. */
  static async loaded(view, state, signal) {
    const { asks, holds } = view.constructor;
    return view.load(holds && asks.includes("target") ? await held(state, signal) : state, signal);
  }

  /** Asks again and draws. */
  async refresh() {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const state = current();
    this.setAttribute("aria-busy", "true");
    if (this.data === undefined) this.replaceChildren(this.heading(), h("p", { class: "waiting" }, t("waiting")));
    try {
      if (!state.text.trim() && this.constructor.needsText !== false) throw Object.assign(new Error(),
        { code: "no_text" });
      const data = await View.loaded(this, state, signal);
      if (signal.aborted) return;
      this.data = data;
      this.failed = null;
      this.draw();
    } catch (error) {
      if (wasCancelled(error) || signal.aborted) return;
      this.failed = error;
      this.draw();
    } finally {
      if (!signal.aborted) this.removeAttribute("aria-busy");
    }
  }

  /** Draws what is there; the focus stays where it was. */
  draw() {
    if (this.failed) this.drawn(this.heading(), ...this.fixed(current()), this.complaint(this.failed));
    else if (this.data !== undefined) this.drawn(this.heading(), ...this.content(this.data, current()));
  }

  /** Controls that stay when an answer fails, so that there is a way back. */
  fixed() {
    return [];
  }

  heading() {
    const { name } = this.constructor;
    return h("header", { class: "heading" }, h("h2", {}, t(`${name}.title`)), h("p", {}, t(`${name}.intro`)),
      reading(name));
  }

  follow(changed) {
    if (!this.isConnected) return; // replaced while the change was told
    const { asks, draws } = this.constructor;
    if ([...asks, ...(asks.includes("target") ? ["hold"] : [])].some((name) => changed.has(name)
      && decides(name, current()))) this.refresh();
    else if ([...draws, ...DRAWN_BY_ALL].some((name) => changed.has(name))) this.patch(changed);
  }

  /** A view may do less than draw all of itself. */
  patch() {
    this.draw();
  }

  /** Maps follow the width of the page by themselves; a view may too. */
  resized() {}

  complaint(error) {
    return complaint(error, () => this.refresh());
  }

  drawn(...children) {
    const focus = this.contains(document.activeElement) ? document.activeElement.id : "";
    this.keepHeight();
    this.replaceChildren(...children);
    if (focus) document.getElementById(focus)?.focus();
  }

  /** Maps have no height until they know their width: without this the page would scroll up when they are replaced. */
  async keepHeight() {
    this.style.setProperty("min-height", `${this.offsetHeight}px`);
    await nextFrame();
    await nextFrame();
    this.style.removeProperty("min-height");
  }
}

/** An error that can be seen, with a way on. */
export function complaint(error, retry) {
  if (error.code === undefined) console.error(error); // a mistake of ours
  return h("div", { class: "complaint", role: "alert" },
    h("p", {}, said(error)),
    h("div", { class: "row" },
      error.code === "no_text" ? null : h("button", { type: "button", class: "retry", onclick: retry }, t("retry")),
      choicesOf(error)));
}
