// The faults of an answer: marked at their places in the text, each with its evidence. It asks when it is opened.

import { ask, offline, wasCancelled } from "../api.js";
import { h, nextFrame, percent, visible } from "../dom.js";
import { language, t } from "../i18n.js";
import { basics } from "../requests.js";
import { current } from "../store.js";
import { complaint } from "../view.js";

let opened = false; // stays for the next answer

class FaultPanel extends HTMLElement {
  connectedCallback() {
    this.found = h("div", { "aria-live": "polite" });
    this.replaceChildren(h("details", { class: "faults", open: opened, ontoggle: ({ target }) => this.follow(target.open) },
      h("summary", { id: "faults" }, t("faults.title")), this.found));
    if (opened) this.refresh();
  }

  disconnectedCallback() {
    this.controller?.abort();
  }

  follow(isOpen) {
    const asks = isOpen && !opened;
    opened = isOpen;
    if (asks) this.refresh();
  }

  async refresh() {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    this.found.replaceChildren(h("p", { class: "note" }, t("waiting")));
    try {
      await nextFrame(); // an answer may be drawn several times at once: only the last panel asks
      if (signal.aborted) return;
      const { text, cut } = this.answer, { decoder: _, ...question } = basics(current());
      const told = await ask("/check", { ...question, target: text, cut: Boolean(cut) }, signal);
      if (!signal.aborted) this.found.replaceChildren(...this.content(told));
    } catch (error) {
      if (!wasCancelled(error)) this.found.replaceChildren(complaint(error, () => this.refresh()));
    }
  }

  content({ faults, confidence, calibrated, detached_checked: all }) {
    const { text } = this.answer, inPart = faults.filter(({ where: [from, to] }) => to - from < text.length);
    return [
      faults.length ? null : h("p", { class: "note" }, t("faults.none")),
      inPart.length ? h("p", { class: "output" }, marked(text, inPart)) : null,
      faults.length ? h("ul", {}, faults.map((fault) => h("li", {}, h("b", {}, t(`fault.${fault.kind}`)),
        fault.hint ? h("small", {}, ` (${t("faults.hint")})`) : null, " ",
        language() === "zh" ? fault.evidence_zh : fault.evidence))) : null,
      confidence === null ? null : h("p", { class: "note" }, t("faults.confidence", { share: percent(confidence) })),
      calibrated ? null : h("p", { class: "note" }, t("faults.uncalibrated")),
      all ? null : h("p", { class: "note" }, t("faults.textOnly")),
    ].filter(Boolean);
  }
}

/** The text with the places of faults. Where several overlap, the worst one is marked. */
function marked(text, faults) {
  const characters = Array.from(text); // places count code points
  const worst = characters.map((_, n) => faults.find(({ where: [from, to] }) => from <= n && n < to));
  const parts = [];
  for (const [n, fault] of worst.entries()) {
    const last = parts.at(-1);
    if (last && last.fault === fault) last.text += characters[n];
    else parts.push({ fault, text: characters[n] });
  }
  return parts.map((part) => (part.fault ? h("mark", { title: t(`fault.${part.fault.kind}`) }, visible(part.text))
    : part.text));
}

/** Nothing where there is no source, and in a saved page, which has no server. */
export const faultPanel = (answer, hasSource) => (offline || !hasSource || !answer.text.trim() ? []
  : [Object.assign(document.createElement("fault-panel"), { answer })]);

customElements.define("fault-panel", FaultPanel);
