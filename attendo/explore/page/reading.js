// Which pages of the lesson and of the documentation explain a view: links if the site of `make docs` is there, else paths.

import { h } from "./dom.js";
import { language, space, t } from "./i18n.js";
import { current } from "./store.js";

const LESSON = {
  home: "09-whole-model", alignment: "06-cross-attention", heads: "04-heads", steps: "11-generating",
  tree: "11-generating", mask: "05-masks", calculator: "03-attention", ablation: "15-applications",
  representations: "08-residual-norm-dropout", compare: "10-training", training: "10-training",
  parallel: "13-all-at-once",
};

const DOCUMENTATION = {
  heads: "seeing/heads", steps: "decoding/samples", tree: "decoding/greedy-and-beam", calculator: "seeing/trace",
  parallel: "decoding/parallel",
};

const REPRESENTATIONS = { embeddings: "01-tokens", positions: "02-positions", units: "07-feed-forward" };

/** A page of the documentation: a link to its site, which `index.html` names, or its path. */
function page(path) {
  const { documentation } = document.documentElement.dataset;
  return documentation ? h("a", { href: `${documentation}/${path.replace(/^docs\//, "").replace(/\.md$/, ".html")}`,
    target: "_blank" }, path) : h("code", {}, path);
}

/** The line below the title of a view. */
export function reading(view) {
  const chinese = language() === "zh";
  const lesson = (view === "representations" && REPRESENTATIONS[current().rep]) || LESSON[view];
  const documentation = `docs/${chinese ? "zh/" : ""}${DOCUMENTATION[view] ?? "seeing/explore"}.md`;
  return h("p", { class: "note reading" }, `${t("reading.lesson")}${space()}`,
    page(`docs/lesson/${chinese ? "zh" : "en"}/${lesson}.md`), ` · ${t("reading.documentation")}${space()}`,
    page(documentation));
}
