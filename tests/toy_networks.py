"""Networks with known probabilities: bigram tables, and trees whose logits depend on the complete prefix."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from attendo.text import BOS, EOS, PAD, UNK

A, B = 4, 5
VOCABULARY = 6
TEXT_TOKENS = (UNK, A, B)  # the tokens that may come before EOS
BigramTable = dict[int, dict[int, float]]

# Greedy: a, then b, then EOS.
SHORT: BigramTable = {BOS: {A: 0.6, B: 0.3, EOS: 0.1}, A: {B: 0.7, EOS: 0.2, A: 0.1}, B: {EOS: 0.5, A: 0.4, B: 0.1}}
# Greedy: b at every step, never EOS.
ENDLESS: BigramTable = {BOS: {B: 0.9, EOS: 0.1}, B: {B: 0.8, EOS: 0.2}}
# Greedy: EOS as the first token.
SILENT: BigramTable = {BOS: {EOS: 0.9, A: 0.1}}


@dataclass(frozen=True)
class BigramState:
    """The state of a bigram network: the table of each sentence."""

    tables: Tensor  # one index per sentence

    def reorder(self, parents: Tensor) -> "BigramState":
        return self

    def select(self, sentences: Tensor, rows: Tensor) -> "BigramState":
        return BigramState(self.tables[sentences])


class Bigrams:
    """The next token depends on the last token only."""

    def __init__(self, *tables: BigramTable) -> None:
        self.logits = torch.full((len(tables), VOCABULARY, VOCABULARY), -1e9)
        for n, table in enumerate(tables):
            for last, following in table.items():
                for token, probability in following.items():
                    self.logits[n, last, token] = math.log(probability) + 3.0  # logits are log-probabilities plus 3

    def step(self, ids: Tensor, state: BigramState) -> tuple[Tensor, BigramState]:
        width = ids.size(0) // state.tables.size(0)
        return self.logits[state.tables.repeat_interleave(width), ids[:, -1]][:, None], state


@dataclass(frozen=True)
class TreeState:
    """The state of a tree: the tree of each sentence, and all tokens of its rows."""

    trees: Tensor
    ids: Tensor | None = None

    @staticmethod
    def start(*trees: int) -> "TreeState":
        return TreeState(torch.tensor(trees))

    def reorder(self, parents: Tensor) -> "TreeState":
        assert self.ids is not None
        return TreeState(self.trees, self.ids[parents])

    def select(self, sentences: Tensor, rows: Tensor) -> "TreeState":
        return TreeState(self.trees[sentences], None if self.ids is None else self.ids[rows])


class Trees:
    """Every prefix has its own random logits, so a row with the state of another row gives wrong numbers."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # rows in each step

    def step(self, ids: Tensor, state: TreeState) -> tuple[Tensor, TreeState]:
        self.rows.append(ids.size(0))
        prefix = ids if state.ids is None else torch.cat((state.ids, ids), dim=1)
        state = TreeState(state.trees, prefix)
        trees = state.trees.repeat_interleave(ids.size(0) // state.trees.size(0))
        rows = zip(trees.tolist(), prefix.tolist(), strict=True)
        return torch.stack([logits(tree, tuple(prefix)) for tree, prefix in rows])[:, None], state


@cache
def logits(tree: int, prefix: tuple[int, ...]) -> Tensor:
    number = tree
    for token in prefix:
        number = (number * VOCABULARY + token + 1) % 1_000_003
    return 1.5 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(number))


def log_probability(tree: int, ids: list[int]) -> float:
    """Log-probability of these tokens after BOS; PAD is skipped."""
    prefix, total = (BOS,), 0.0
    for token in ids:
        if token != PAD:
            total += logits(tree, prefix).log_softmax(-1)[token].item()
            prefix = (*prefix, token)
    return total
