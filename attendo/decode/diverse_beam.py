"""Diverse beam search: groups of rows, each a beam that avoids the tokens of earlier groups."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.beam import Beam, Stop, concat_rows, gather_rows
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.decode.search import Strategy
from attendo.errors import UsageError

# Receives each step: the rows, the log-probabilities before and after the rules, the parents, and the new rows.
StepCallback = Callable[[Frontier, Tensor, Tensor, Tensor | None, Frontier], None]


@dataclass(frozen=True)
class DiverseBeam(Strategy):
    """Diverse beam search with Hamming diversity (Vijayakumar et al. 2016).

    At every step the groups choose one after the other. A continuation with token v loses

        strength * (rows of earlier groups of the sentence that continue with v at this step)

    Rows that end do not count. The loss stays in the hypothesis's value and score as a penalty. It never changes its
    log-probability. Each group stops by itself. The sentence is done when all groups are done. It then has the
    hypotheses of all groups, best first. One group is a plain beam.
    """

    width: int  # of all groups together
    groups: int
    strength: float = 0.5
    ranking: Ranking = field(default_factory=Ranking)
    stop: Stop = "settled"
    on_group_step: StepCallback | None = field(default=None, compare=False, repr=False)  # called by each group

    def __post_init__(self) -> None:
        if self.groups < 1 or self.width < 1 or self.width % self.groups:
            raise UsageError("width_not_divisible_by_groups", groups=self.groups, width=self.width)
        if self.strength < 0:
            raise UsageError("diversity_strength_negative", strength=self.strength)

    @property
    def beam(self) -> Beam:
        """The beam of one group."""
        return Beam(self.width // self.groups, self.ranking, self.stop)

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        """Return the initial rows. The groups of a sentence are adjacent, like separate sentences."""
        capacity = limits.capacity if capacity is None else capacity
        return _merge_group_rows(self.beam.start(limits.repeat(self.groups), capacity), self.groups)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        chosen = log_probs.new_zeros(log_probs.size(0) // self.width, log_probs.size(1))  # [B, V]: number of rows
        parents, grown = [], []
        finished = frontier.finished
        assert finished is not None  # `start` guarantees it
        for n in range(self.groups):
            rows = self._group_rows(n, frontier)
            before = frontier.select(rows, self.beam.width)
            best = finished.select(self._group_rows(n, finished), self.beam.max_finished)
            lost = (self.strength * chosen).repeat_interleave(self.beam.width, dim=0)
            step = replace(before, finished=best), log_probs.index_select(0, rows), ruled.index_select(0, rows) - lost
            from_row, group = self.beam.advance(*step)
            assert from_row is not None  # a beam always returns parents
            if self.on_group_step is not None:
                self.on_group_step(*step, from_row, group)
            parents.append(rows.index_select(0, from_row).view(-1, self.beam.width))
            grown.append(group)
            goes_on = (group.open & (group.log_probability != NEG_INF)).to(chosen.dtype)
            chosen = chosen.scatter_add(1, group.last.view(parents[0].shape), goes_on.view(parents[0].shape))
        return torch.cat(parents, dim=1).flatten(), self._merge_groups(grown)

    def _group_rows(self, n: int, frontier: Frontier) -> Int[Tensor, " N"]:
        """Return the rows of the n-th group of each sentence."""
        rows = torch.arange(frontier.length.size(0), device=frontier.length.device)
        return rows.view(-1, self.groups, frontier.width // self.groups)[:, n].flatten()

    def _merge_groups(self, groups: list[Frontier]) -> Frontier:
        rows, finished = replace(groups[0], finished=None), groups[0].hypotheses
        for group in groups[1:]:
            rows, finished = concat_rows(rows, replace(group, finished=None)), concat_rows(finished, group.hypotheses)
        return replace(rows, finished=self._sort_finished(rows, finished))

    def _sort_finished(self, rows: Frontier, finished: Frontier) -> Frontier:
        """Sort the hypotheses of finished sentences, best first. Until then each group's hypotheses stay together."""
        is_open = rows.open.view(-1, self.width).any(dim=1, keepdim=True)
        indices = torch.arange(finished.width, device=is_open.device)
        order = torch.where(is_open, indices, self.beam.best_first(finished))
        return gather_rows(finished, order)


def _merge_group_rows(frontier: Frontier, groups: int) -> Frontier:
    """Merge the groups of each sentence into one sentence with more rows."""
    assert frontier.finished is not None
    finished = replace(frontier.finished, width=frontier.finished.width * groups)
    return replace(frontier, width=frontier.width * groups, finished=finished)
