// The views in the order of their tabs.

import { savedViews } from "../api.js";
import { isParallel } from "../models.js";
import { Ablation } from "./ablation.js";
import { Alignment } from "./alignment.js";
import { Calculator } from "./calculator.js";
import { Compare } from "./compare.js";
import { Heads } from "./heads.js";
import { Home } from "./home.js";
import { Mask } from "./mask.js";
import { Parallel } from "./parallel.js";
import { Representations } from "./representations.js";
import { Steps } from "./steps.js";
import { Training } from "./training.js";
import { Tree } from "./tree.js";

export const VIEWS = { home: Home, parallel: Parallel, alignment: Alignment, heads: Heads, steps: Steps, tree: Tree, mask: Mask, calculator: Calculator,
  ablation: Ablation, representations: Representations, compare: Compare, training: Training };

const AT_ONCE = ["home", "parallel", "training"];

/** The views of the chosen model: attention, steps and search are those of autoregressive models. */
export const shownViews = () => Object.keys(VIEWS).filter((name) => (!savedViews || savedViews.includes(name))
  && (isParallel() ? AT_ONCE.includes(name) : name !== "parallel"));

for (const [name, view] of Object.entries(VIEWS)) customElements.define(`view-${name}`, view);
