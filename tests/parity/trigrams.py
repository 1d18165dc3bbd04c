"""Tables of trigrams: networks whose every probability can be looked up, by us and by a search written down plainly."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attendo.text import BOS, EOS, PAD

VOCABULARY = 18


@dataclass(frozen=True)
class Before:
    """The state: which table each sentence speaks from, and the token before the last of each row."""

    tables: Tensor
    token: Tensor | None = None

    def reorder(self, parents: Tensor) -> "Before":
        assert self.token is not None
        return replace(self, token=self.token[parents])

    def select(self, sentences: Tensor, rows: Tensor) -> "Before":
        return Before(self.tables[sentences], None if self.token is None else self.token[rows])


class Trigrams:
    """The last two tokens decide what follows, in each sentence in another way."""

    def __init__(self, count: int, seed: int = 1, eos: float = 0.7) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = 1.5 * torch.randn(count, VOCABULARY, VOCABULARY, VOCABULARY, generator=generator)
        self.logits[..., EOS] += eos
        self.log_probs = self.logits.log_softmax(-1).tolist()

    def step(self, ids: Tensor, state: Before) -> tuple[Tensor, Before]:
        last = ids[:, -1]
        before = torch.full_like(last, PAD) if state.token is None else state.token
        tables = state.tables.repeat_interleave(ids.size(0) // state.tables.size(0))
        return self.logits[tables, before, last][:, None], Before(state.tables, last)

    def following(self, table: int, said: tuple[int, ...]) -> list[float]:
        """The log-probabilities of what comes next."""
        before, last = (PAD, BOS, *said)[-2:]
        found: list[float] = self.log_probs[table][before][last]
        return found
