// The views in the order of their tabs.

import { Ablation } from "./ablation.js";
import { Alignment } from "./alignment.js";
import { Compare } from "./compare.js";
import { Heads } from "./heads.js";
import { Ledger } from "./ledger.js";
import { Mask } from "./mask.js";
import { Steps } from "./steps.js";
import { Training } from "./training.js";
import { Tree } from "./tree.js";

export const VIEWS = { alignment: Alignment, heads: Heads, steps: Steps, tree: Tree, mask: Mask, ledger: Ledger,
  ablation: Ablation, compare: Compare, training: Training };

for (const [name, view] of Object.entries(VIEWS)) customElements.define(`view-${name}`, view);
