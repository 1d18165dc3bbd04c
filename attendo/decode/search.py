"""The one generation loop: step the network, forbid what may not be said, let a strategy choose, until all is said."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.text import BOS, EOS, PAD

CLOSED_SHARE = 0.25  # of the rows: so many closed ones leave the batch. Fewer are not worth the copy of the state.


@runtime_checkable
class Stepper(Protocol):
    """All that the loop asks of a model, so that an ensemble, or a table of bigrams in a test, can stand in."""

    def step(self, ids: Int[Tensor, "R 1"], state: Any) -> tuple[Float[Tensor, "R 1 V"], Any]: ...


@dataclass(frozen=True)
class Frontier:
    """Every row as far as it has come, those of a sentence side by side.

    A row is open until it ends in eos or reaches its limit.
    """

    ids: Int[Tensor, "R T"]  # begins with bos; pad behind the end
    log_probability: Float[Tensor, " R"]  # of the tokens chosen, eos included
    limit: Int[Tensor, " R"]  # most tokens of each row, bos and eos not counted
    ended: Bool[Tensor, " R"]  # by eos
    cut: Bool[Tensor, " R"]  # at the limit, where another token than eos would have come next
    finished: "Frontier | None" = None  # what a beam has put aside for its open sentences, a row beside each row

    @staticmethod
    def start(limit: Int[Tensor, " R"]) -> "Frontier":
        nowhere = torch.zeros_like(limit, dtype=torch.bool)
        ids = torch.full((limit.size(0), 1), BOS, device=limit.device)
        return Frontier(ids, torch.zeros(limit.size(0), device=limit.device), limit, ended=nowhere, cut=nowhere)

    @property
    def open(self) -> Bool[Tensor, " R"]:
        return ~(self.ended | self.cut)

    @property
    def full(self) -> Bool[Tensor, " R"]:
        """Open rows behind which only eos may come."""
        return self.open & (self.ids.size(1) > self.limit)

    @property
    def tokens(self) -> Int[Tensor, " R"]:
        """How many tokens each row has, eos included, bos not."""
        return (self.ids[:, 1:] != PAD).sum(dim=1)

    def select(self, rows: Int[Tensor, " N"]) -> "Frontier":
        return Frontier(
            ids=self.ids[rows],
            log_probability=self.log_probability[rows],
            limit=self.limit[rows],
            ended=self.ended[rows],
            cut=self.cut[rows],
            finished=None if self.finished is None else self.finished.select(rows),
        )

    def grow(self, ids: Int[Tensor, " R"], log_probability: Float[Tensor, " R"]) -> "Frontier":
        """One more token in every open row. Rows that are closed, or close because they are full, take pad for free."""
        too_many = self.full & (ids != EOS)
        grows = self.open & ~too_many
        ids = torch.where(grows, ids, PAD)
        return Frontier(
            ids=torch.cat((self.ids, ids[:, None]), dim=1),
            log_probability=self.log_probability + torch.where(grows, log_probability, 0.0),
            limit=self.limit,
            ended=self.ended | (ids == EOS),
            cut=self.cut | too_many,
        )


@runtime_checkable
class Rule(Protocol):
    """Something that may not be said."""

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]: ...


@runtime_checkable
class Strategy(Protocol):
    """A way to choose. It decides how many rows a sentence has, and closes all of them at once when it is done."""

    @property
    def width(self) -> int:
        """Rows of a sentence."""

    def start(self, limit: Int[Tensor, " B"]) -> Frontier:
        """The rows before the first token, `width` for each sentence."""

    def advance(self, frontier: Frontier, log_probs: Float[Tensor, "R V"]) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        """The row that each new row continues (None: every row itself), and the rows with one more token."""


@torch.inference_mode()
def search(
    stepper: Stepper, state: Any, limit: Int[Tensor, " B"], strategy: Strategy, rules: Sequence[Rule] = ()
) -> Iterator[Frontier]:
    """Yields the frontier of all sentences after every token; the last one is the result.

    `state` has one row a sentence. Closed rows stay in what is told but leave the batch that is stepped.
    """
    frontier = told = strategy.start(limit)
    rows = torch.arange(frontier.limit.size(0), device=limit.device)  # where those that are stepped stand in `told`
    if strategy.width > 1:
        state = state.select(rows // strategy.width)
    while (still_open := int(frontier.open.sum())) > 0:
        if still_open <= (1 - CLOSED_SHARE) * rows.size(0):
            staying = frontier.open.nonzero()[:, 0]
            state, frontier, rows = state.select(staying), frontier.select(staying), rows[staying]
        logits, state = stepper.step(frontier.ids[:, -1:], state)
        log_probs = logits[:, -1].float().log_softmax(-1)
        for rule in rules:
            log_probs = rule(log_probs, frontier)
        parents, frontier = strategy.advance(frontier, log_probs)
        if parents is not None:
            state = state.select(parents)
        told = frontier if rows.size(0) == told.limit.size(0) else _put(frontier, told, rows)
        yield told


def _put(new: Frontier, told: Frontier, rows: Int[Tensor, " R"]) -> Frontier:
    """`told` with the new rows in their places; the others are closed, and take pad."""
    ids = F.pad(told.ids, (0, new.ids.size(1) - told.ids.size(1)), value=PAD)
    return Frontier(
        ids=ids.index_copy(0, rows, new.ids),
        log_probability=told.log_probability.index_copy(0, rows, new.log_probability),
        limit=told.limit,
        ended=told.ended.index_copy(0, rows, new.ended),
        cut=told.cut.index_copy(0, rows, new.cut),
    )
