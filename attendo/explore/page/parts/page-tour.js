// One station of the tour above the view. The view is hidden until its reader has guessed.

import { h } from "../dom.js";
import { space, t } from "../i18n.js";
import { current, subscribe, update } from "../store.js";
import { stateOf, stations } from "../tour.js";
import { button } from "./controls.js";

class PageTour extends HTMLElement {
  connectedCallback() {
    this.end = subscribe((changed) => this.follow(changed));
    this.enter();
  }

  disconnectedCallback() {
    this.end();
    this.controller?.abort();
    this.loose?.abort();
  }

  follow(changed) {
    if (changed.has("tour") || changed.has("model")) this.enter();
    else if (changed.has("lang")) this.draw();
  }

  /** The number of the station, from 1; 0 is no tour. */
  get number() {
    return Math.min(Math.max(0, current().tour), stations().length);
  }

  enter() {
    this.controller?.abort();
    this.guessed = this.right = null;
    this.failed = false;
    this.draw();
    this.hold();
  }

  /** Keeps the station at the top while the page around it loads, until its reader does something. */
  hold() {
    this.loose?.abort();
    if (!this.number) return;
    const { signal } = (this.loose = new AbortController());
    const observer = new ResizeObserver(() => this.scrollIntoView({ block: "start" }));
    this.scrollIntoView({ block: "start" });
    observer.observe(document.body);
    signal.addEventListener("abort", () => observer.disconnect());
    for (const event of ["pointerdown", "wheel", "touchmove", "keydown"])
      addEventListener(event, () => this.loose.abort(), { signal, capture: true, passive: true });
  }

  draw() {
    const { number } = this, all = stations(), main = document.getElementById("main");
    this.hidden = !number;
    main?.classList.toggle("veiled", Boolean(number) && this.right === null);
    if (main) main.inert = Boolean(number) && this.right === null;
    if (!number) return this.replaceChildren();
    const { name, guesses } = all[number - 1], focus = this.contains(document.activeElement)
      ? document.activeElement.id : "";
    this.replaceChildren(h("section", { class: "card tour", "aria-label": t("tour.title") },
      h("div", { class: "row" }, h("h2", {}, t("tour.station", { number, count: all.length, title:
        t(`tour.${name}.title`) })), h("span", { class: "end row" },
      button(t("tour.before"), () => go(number - 1), { id: "tour-before", disabled: number === 1 }),
      button(t("tour.next"), () => go(number + 1), { id: "tour-next", disabled: number === all.length,
        class: this.right !== null && number < all.length ? "primary" : null }),
      button(t("tour.leave"), () => update({ tour: 0 }), { id: "tour-leave",
        class: this.right !== null && number === all.length ? "primary" : null }))),
      h("p", { class: "question" }, t(`tour.${name}.question`)),
      h("div", { class: "row guesses" }, Array.from({ length: guesses }, (_, n) => this.guess(name, n))),
      h("div", { role: "status" }, this.verdict(name))));
    if (focus) document.getElementById(focus)?.focus();
  }

  guess(name, n) {
    const known = this.right !== null, sign = known && n === this.right ? "✓ " : known && n === this.guessed ? "✗ " : "";
    return button(`${sign}${t(`tour.${name}.${n}`)}`, () => this.decide(n), { id: `guess-${n}`,
      "aria-pressed": String(n === this.guessed), disabled: this.guessed !== null,
      class: known && n === this.right ? "right" : known && n === this.guessed ? "wrong" : null });
  }

  verdict(name) {
    if (this.failed) return h("p", { class: "notice" }, t("tour.failed"));
    if (this.guessed === null) return h("p", { class: "note" }, t("tour.guess"));
    if (this.right === null) return h("p", { class: "note" }, t("waiting"));
    return h("p", {}, h("b", {}, t(this.guessed === this.right ? "tour.right" : "tour.wrong")), space(),
      t(`tour.${name}.told`));
  }

  async decide(n) {
    const { right } = stations()[this.number - 1], { signal } = (this.controller = new AbortController());
    this.guessed = n;
    this.failed = false;
    this.draw();
    try {
      const found = typeof right === "function" ? await right(current(), signal) : right;
      if (signal.aborted) return;
      this.right = found;
    } catch {
      if (signal.aborted) return;
      this.failed = true;
      this.guessed = null;
    }
    this.draw();
    document.getElementById(this.number < stations().length ? "tour-next" : "tour-leave")?.focus({ preventScroll: true });
  }
}

/** Begins the tour or goes to a station. */
export function go(number) {
  update(stateOf(number));
}

customElements.define("page-tour", PageTour);
