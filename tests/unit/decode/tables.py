"""Stand-ins for a network with every probability known: tables of bigrams, and trees where all that was said counts."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from attendo.text import BOS, EOS, PAD, UNK

A, B = 4, 5
VOCABULARY = 6
SPOKEN = (UNK, A, B)  # what may come before eos
Chances = dict[int, dict[int, float]]

# From bos: a, then b, then the end.
SHORT: Chances = {BOS: {A: 0.6, B: 0.3, EOS: 0.1}, A: {B: 0.7, EOS: 0.2, A: 0.1}, B: {EOS: 0.5, A: 0.4, B: 0.1}}
# b for ever.
ENDLESS: Chances = {BOS: {B: 0.9, EOS: 0.1}, B: {B: 0.8, EOS: 0.2}}
# The end at once.
SILENT: Chances = {BOS: {EOS: 0.9, A: 0.1}}


@dataclass(frozen=True)
class Rows:
    """The state of a bigram model: which table each row speaks from."""

    tables: Tensor  # of each sentence

    def reorder(self, parents: Tensor) -> "Rows":
        return self

    def select(self, sentences: Tensor, rows: Tensor) -> "Rows":
        return Rows(self.tables[sentences])


class Bigrams:
    """The last token alone decides what follows."""

    def __init__(self, *tables: Chances) -> None:
        self.logits = torch.full((len(tables), VOCABULARY, VOCABULARY), -1e9)
        for n, table in enumerate(tables):
            for last, following in table.items():
                for token, chance in following.items():
                    self.logits[n, last, token] = math.log(chance) + 3.0  # logits are log-probabilities but for a shift

    def step(self, ids: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        width = ids.size(0) // state.tables.size(0)
        return self.logits[state.tables.repeat_interleave(width), ids[:, -1]][:, None], state


@dataclass(frozen=True)
class Said:
    """The state of a tree: which tree each sentence grows on, and all that its rows have said."""

    trees: Tensor
    ids: Tensor | None = None

    @staticmethod
    def nothing(*trees: int) -> "Said":
        return Said(torch.tensor(trees))

    def reorder(self, parents: Tensor) -> "Said":
        assert self.ids is not None
        return Said(self.trees, self.ids[parents])

    def select(self, sentences: Tensor, rows: Tensor) -> "Said":
        return Said(self.trees[sentences], None if self.ids is None else self.ids[rows])


class Trees:
    """Logits drawn anew behind every sequence, so that a row whose state is another's is found out."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # how many were stepped each time

    def step(self, ids: Tensor, state: Said) -> tuple[Tensor, Said]:
        self.rows.append(ids.size(0))
        said = ids if state.ids is None else torch.cat((state.ids, ids), dim=1)
        state = Said(state.trees, said)
        trees = state.trees.repeat_interleave(ids.size(0) // state.trees.size(0))
        rows = zip(trees.tolist(), said.tolist(), strict=True)
        return torch.stack([logits(tree, tuple(said)) for tree, said in rows])[:, None], state


@cache
def logits(tree: int, said: tuple[int, ...]) -> Tensor:
    number = tree
    for token in said:
        number = (number * VOCABULARY + token + 1) % 1_000_003
    return 1.5 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(number))


def log_probability(tree: int, ids: list[int]) -> float:
    """Of these tokens, from the first behind bos; pad is no token."""
    said, total = (BOS,), 0.0
    for token in ids:
        if token != PAD:
            total += logits(tree, said).log_softmax(-1)[token].item()
            said = (*said, token)
    return total
