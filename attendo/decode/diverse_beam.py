"""Diverse beam search: groups of rows, each a beam that avoids the tokens of earlier groups."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.beam import Beam, Stop, concat_rows
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.decode.search import Strategy
from attendo.errors import UsageError


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
        for n in range(self.groups):
            rows = self._group_rows(n, frontier)
            lost = (self.strength * chosen).repeat_interleave(self.beam.width, dim=0)
            from_row, group = self.beam.advance(
                self._select_group(n, frontier), log_probs.index_select(0, rows), ruled.index_select(0, rows) - lost
            )
            assert from_row is not None  # a beam always returns parents
            parents.append(rows.index_select(0, from_row).view(-1, self.beam.width))
            grown.append(group)
            goes_on = (group.open & (group.log_probability != NEG_INF)).to(chosen.dtype)
            chosen = chosen.scatter_add(1, group.last.view(parents[0].shape), goes_on.view(parents[0].shape))
        return torch.cat(parents, dim=1).flatten(), self._merge_groups(grown)

    def _group_rows(self, n: int, frontier: Frontier) -> Int[Tensor, " N"]:
        """Return the rows of the n-th group of each sentence."""
        width, device = self.beam.width, frontier.length.device
        first = torch.arange(n * width, frontier.length.size(0), self.width, device=device)
        return (first[:, None] + torch.arange(width, device=device)).flatten()

    def _select_group(self, n: int, frontier: Frontier) -> Frontier:
        assert frontier.finished is not None  # `start` guarantees it
        max_finished = self.beam.max_finished
        first = torch.arange(
            n * max_finished, frontier.finished.length.size(0), self.groups * max_finished, device=frontier.ids.device
        )
        finished = (first[:, None] + torch.arange(max_finished, device=first.device)).flatten()
        group = frontier.select(self._group_rows(n, frontier), self.beam.width)
        return replace(group, finished=frontier.finished.select(finished, max_finished))

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
        first = torch.arange(0, finished.length.size(0), finished.width, device=order.device)[:, None]
        return finished.select((first + order).flatten(), finished.width)


def _merge_group_rows(frontier: Frontier, groups: int) -> Frontier:
    """Merge the groups of each sentence into one sentence with more rows."""
    assert frontier.finished is not None
    finished = replace(frontier.finished, width=frontier.finished.width * groups)
    return replace(frontier, width=frontier.width * groups, finished=finished)
