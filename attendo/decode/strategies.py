"""Strategies: ways to choose the next token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.ranking import row_scores
from attendo.decode.search import Frontier
from attendo.errors import UsageError
from attendo.text import EOS, PAD

NOTHING = float("-inf")  # the log-probability of a row that holds no hypothesis


class Greedy:
    """The most probable token, each row for itself."""

    width = 1

    def start(self, limit: Int[Tensor, " B"]) -> Frontier:
        return Frontier.start(limit)

    def advance(self, frontier: Frontier, log_probs: Float[Tensor, "R V"]) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        best = log_probs.max(dim=-1)
        return None, frontier.grow(best.indices, best.values)


@dataclass(frozen=True)
class Beam:
    """The most probable sequences, as far as `width` rows a sentence can tell.

    A step looks at the 2·width best continuations (y, v) of a sentence, by log p(y) + log p(v | y). Those among the
    best width that end in eos are finished; the best width of those that do not end go on. Of the finished, the width
    best are kept, by

        score(y) = log p(y) / |y| ** length_penalty        |y| counts the tokens, eos included

    A sentence is done when width hypotheses are finished and, by the stop rule,

        first      at once
        settled    when no row that goes on scores better, at the length it has, than the worst of them

    where `first` may lose a probable long answer to short ones, hardly probable, that filled the beam before it. It is
    done too when nothing can go on, or its limit has come: rows that are full and whose eos is not among the best
    width are then cut. Once done, the rows of the sentence are its hypotheses, best first: the finished by score,
    behind them those that were cut, by score. Rows without a hypothesis have log-probability -∞ and stand last.
    A width of 1 is greedy.
    """

    width: int
    length_penalty: float = 1.0
    stop: Literal["first", "settled"] = "settled"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError(f"a beam has at least one row: width must be 1 or more, not {self.width}")

    def start(self, limit: Int[Tensor, " B"]) -> Frontier:
        """All rows of a sentence are alike at first, so only one of them counts."""
        first = Frontier.start(limit.repeat_interleave(self.width))
        nothing = torch.full_like(first.log_probability, NOTHING)
        counts = torch.arange(nothing.size(0), device=limit.device) % self.width == 0
        return replace(
            first,
            log_probability=torch.where(counts, 0.0, nothing),
            finished=replace(first, log_probability=nothing, cut=~first.cut),
        )

    def advance(self, frontier: Frontier, log_probs: Float[Tensor, "R V"]) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        assert frontier.finished is not None  # start has seen to it
        best = self._continuations(frontier, log_probs)
        finishing = best.log_probability.isfinite() & (best.ids == EOS)
        finishing[:, self.width :] = False

        before = _pad(frontier.finished)
        finished = self._best(before, self._ended(frontier, best, finishing), self._cut(frontier, best, finishing))
        parents, going = self._going(frontier, best)

        stuck = self._all(going.log_probability == NOTHING)
        done = frontier.full | stuck | self._enough(finished, going)
        closed = ~frontier.open
        finished = _where(closed, before, finished)
        return parents, replace(_where(done | closed, finished, going), finished=finished)

    def _continuations(self, frontier: Frontier, log_probs: Float[Tensor, "R V"]) -> "_Continuations":
        rows, vocabulary = log_probs.shape
        total = (frontier.log_probability[:, None] + log_probs).view(-1, self.width * vocabulary)  # [R, V] -> [B, W V]
        best = total.topk(2 * self.width)
        first = torch.arange(0, rows, self.width, device=log_probs.device)[:, None]
        return _Continuations(first + best.indices // vocabulary, best.indices % vocabulary, best.values)

    def _ended(self, frontier: Frontier, best: "_Continuations", finishing: Bool[Tensor, "B C"]) -> Frontier:
        """The first `width` continuations, with nothing where they do not end."""
        log_probability = best.log_probability.masked_fill(~finishing, NOTHING)
        grown = best.take(frontier, torch.arange(self.width, device=finishing.device).expand(len(finishing), -1))
        ended = finishing[:, : self.width].flatten()
        return replace(grown, log_probability=log_probability[:, : self.width].flatten(), ended=ended, cut=~ended)

    def _cut(self, frontier: Frontier, best: "_Continuations", finishing: Bool[Tensor, "B C"]) -> Frontier:
        """The full rows that go on without eos; nothing while there is room."""
        rows = torch.arange(frontier.limit.size(0), device=finishing.device).view(-1, self.width, 1)
        ends = ((best.parents[:, None] == rows) & finishing[:, None]).any(dim=-1).flatten()  # [B, W, C] -> [R]
        log_probability = frontier.log_probability.masked_fill(ends | ~frontier.full, NOTHING)
        return replace(_pad(frontier), log_probability=log_probability, cut=torch.ones_like(ends))

    def _going(self, frontier: Frontier, best: "_Continuations") -> tuple[Int[Tensor, " R"], Frontier]:
        """The best `width` continuations that do not end: at most one of a row does, so there are as many."""
        order = (best.ids == EOS).byte().argsort(dim=1, stable=True)[:, : self.width]
        return best.parents.gather(1, order).flatten(), best.take(frontier, order)

    def _best(self, *groups: Frontier) -> Frontier:
        """The best hypotheses of each sentence, finished before cut."""
        together = _beside(groups, self.width)
        scores = row_scores(together, self.length_penalty).unflatten(0, (-1, len(groups) * self.width))
        by_score = scores.argsort(dim=1, descending=True, stable=True)
        not_ended = (~together.ended).byte().view_as(scores).gather(1, by_score)
        order = by_score.gather(1, not_ended.argsort(dim=1, stable=True))[:, : self.width]
        first = torch.arange(0, scores.numel(), scores.size(1), device=order.device)[:, None]
        return together.select((first + order).flatten())

    def _enough(self, finished: Frontier, going: Frontier) -> Bool[Tensor, " R"]:
        enough = self._all(finished.ended)
        if self.stop == "first":
            return enough
        worst = row_scores(finished, self.length_penalty).view(-1, self.width)[:, -1:]
        return enough & self._all((row_scores(going, self.length_penalty).view(-1, self.width) <= worst).flatten())

    def _all(self, rows: Bool[Tensor, " R"]) -> Bool[Tensor, " R"]:
        """True in every row of a sentence where it is true of all of them."""
        return rows.view(-1, self.width).all(dim=1).repeat_interleave(self.width)


@dataclass(frozen=True)
class _Continuations:
    """The best ways to go on, in order: the row that is continued, the next id, the log-probability of both."""

    parents: Int[Tensor, "B C"]
    ids: Int[Tensor, "B C"]
    log_probability: Float[Tensor, "B C"]

    def take(self, frontier: Frontier, order: Int[Tensor, "B W"]) -> Frontier:
        """The rows that these of the continuations lead to, open."""
        parents = self.parents.gather(1, order).flatten()
        ids = self.ids.gather(1, order).flatten()
        return Frontier(
            ids=torch.cat((frontier.ids[parents], ids[:, None]), dim=1),
            log_probability=self.log_probability.gather(1, order).flatten(),
            limit=frontier.limit,
            ended=torch.zeros_like(parents, dtype=torch.bool),
            cut=torch.zeros_like(parents, dtype=torch.bool),
        )


def _pad(frontier: Frontier) -> Frontier:
    return replace(frontier, ids=F.pad(frontier.ids, (0, 1), value=PAD), finished=None)


def _beside(groups: Sequence[Frontier], width: int) -> Frontier:
    """Groups of `width` rows a sentence as one, all rows of a sentence together."""
    ids, log_probability, limit, ended, cut = (
        torch.cat([getattr(group, name).unflatten(0, (-1, width)) for group in groups], dim=1).flatten(0, 1)
        for name in ("ids", "log_probability", "limit", "ended", "cut")
    )
    return Frontier(ids, log_probability, limit, ended, cut)


def _where(rows: Bool[Tensor, " R"], one: Frontier, other: Frontier) -> Frontier:
    """These rows from one, the rest from the other."""
    return Frontier(
        ids=torch.where(rows[:, None], one.ids, other.ids),
        log_probability=torch.where(rows, one.log_probability, other.log_probability),
        limit=other.limit,
        ended=torch.where(rows, one.ended, other.ended),
        cut=torch.where(rows, one.cut, other.cut),
    )
