"""Trigram tables: networks whose probabilities can be looked up, by our search and by a plain reference search."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attendo.text import BOS, EOS, PAD

VOCABULARY = 18


@dataclass(frozen=True)
class TrigramState:
    """The table of each sentence, and the second-to-last token of each row."""

    tables: Tensor
    token: Tensor | None = None

    def reorder(self, parents: Tensor) -> "TrigramState":
        assert self.token is not None
        return replace(self, token=self.token[parents])

    def select(self, sentences: Tensor, rows: Tensor) -> "TrigramState":
        return TrigramState(self.tables[sentences], None if self.token is None else self.token[rows])


class Trigrams:
    """The last two tokens decide the next one, with another table for each sentence."""

    def __init__(self, count: int, seed: int = 1, eos: float = 0.7) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = 1.5 * torch.randn(count, VOCABULARY, VOCABULARY, VOCABULARY, generator=generator)
        self.logits[..., EOS] += eos
        self.log_probs = self.logits.log_softmax(-1).tolist()

    def step(self, ids: Tensor, state: TrigramState) -> tuple[Tensor, TrigramState]:
        last = ids[:, -1]
        previous = torch.full_like(last, PAD) if state.token is None else state.token
        tables = state.tables.repeat_interleave(ids.size(0) // state.tables.size(0))
        return self.logits[tables, previous, last][:, None], TrigramState(state.tables, last)

    def next_log_probs(self, table: int, tokens: tuple[int, ...]) -> list[float]:
        """The log-probabilities of the next token."""
        previous, last = (PAD, BOS, *tokens)[-2:]
        row: list[float] = self.log_probs[table][previous][last]
        return row
