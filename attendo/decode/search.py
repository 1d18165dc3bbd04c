"""The one generation loop: step the network, forbid what may not be said, let a strategy choose, until all is said."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.text import BOS, EOS, PAD


@runtime_checkable
class Stepper(Protocol):
    """All that the loop asks of a model, so that an ensemble, or a table of bigrams in a test, can stand in."""

    def step(self, ids: Int[Tensor, "R 1"], state: Any) -> tuple[Float[Tensor, "R 1 V"], Any]: ...


@dataclass(frozen=True)
class Frontier:
    """Every row as far as it has come. A row is open until it ends in eos or reaches its limit."""

    ids: Int[Tensor, "R T"]  # begins with bos; pad behind the end
    log_probability: Float[Tensor, " R"]  # of the tokens chosen, eos included
    limit: Int[Tensor, " R"]  # most tokens of each row, bos and eos not counted
    ended: Bool[Tensor, " R"]  # by eos
    cut: Bool[Tensor, " R"]  # at the limit, where another token than eos would have come next

    @property
    def open(self) -> Bool[Tensor, " R"]:
        return ~(self.ended | self.cut)

    def select(self, rows: Int[Tensor, " R"]) -> "Frontier":
        return Frontier(self.ids[rows], self.log_probability[rows], self.limit[rows], self.ended[rows], self.cut[rows])


@runtime_checkable
class Rule(Protocol):
    """Something that may not be said."""

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]: ...


@runtime_checkable
class Strategy(Protocol):
    """A way to choose: each new row's parent (None: every row its own), its next id, and that id's log-probability."""

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Int[Tensor, " R"], Float[Tensor, " R"]]: ...


@torch.inference_mode()
def search(
    stepper: Stepper, state: Any, limit: Int[Tensor, " R"], strategy: Strategy, rules: Sequence[Rule] = ()
) -> Iterator[Frontier]:
    """Yields the frontier after every token; the last one is the result."""
    rows = limit.size(0)
    nowhere = torch.zeros(rows, dtype=torch.bool, device=limit.device)
    frontier = Frontier(
        ids=torch.full((rows, 1), BOS, device=limit.device),
        log_probability=torch.zeros(rows, device=limit.device),
        limit=limit,
        ended=nowhere,
        cut=nowhere,
    )
    while bool(frontier.open.any()):
        logits, state = stepper.step(frontier.ids[:, -1:], state)
        log_probs = logits[:, -1].float().log_softmax(-1)
        for rule in rules:
            log_probs = rule(log_probs, frontier)
        parents, ids, scores = strategy.advance(frontier, log_probs)
        if parents is not None:
            state, frontier = state.select(parents), frontier.select(parents)
        frontier = _grow(frontier, ids, scores)
        yield frontier


def _grow(before: Frontier, ids: Int[Tensor, " R"], scores: Float[Tensor, " R"]) -> Frontier:
    """Rows that are closed, or close because they are full, take pad at no cost."""
    full = before.open & (ids != EOS) & (before.ids.size(1) > before.limit)
    grows = before.open & ~full
    ids = torch.where(grows, ids, PAD)
    return Frontier(
        ids=torch.cat((before.ids, ids[:, None]), dim=1),
        log_probability=before.log_probability + torch.where(grows, scores, 0.0),
        limit=before.limit,
        ended=before.ended | (ids == EOS),
        cut=before.cut | full,
    )
