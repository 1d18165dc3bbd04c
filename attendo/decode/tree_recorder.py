"""A strategy wrapper that records the search tree of another strategy."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.beam import Beam, Candidates, top_candidates
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.decode.search import Strategy
from attendo.decode.search_tree import CandidateRecord, Fate, RowSnapshot, SearchTree, StepRecord, TreeBuilder
from attendo.text import EOS


class TreeRecorder(Strategy):
    """Returns the answers of the wrapped strategy and records the trees of its searches.

    For a beam, a tree has the 2·width best continuations. With required phrases, it also has up to 2·width rejected
    ones. If each row chooses by itself, it has the `num_candidates` best of every row and the chosen one.
    """

    needs_raw_log_probs = True  # log-probabilities before the rules

    def __init__(self, strategy: Strategy, num_candidates: int = 5) -> None:
        self._strategy, self._num_candidates, self.width = strategy, num_candidates, strategy.width
        self._observed = strategy
        if isinstance(strategy, DiverseBeam):
            self._observed = replace(strategy, on_group_step=self._record_step)
        self._builders: dict[tuple[int, int], TreeBuilder] = {}
        self._group = 0

    @property
    def trees(self) -> list[SearchTree]:
        """The trees by request id and group. If an id was used again, only its last search is kept."""
        return [
            SearchTree(number, group, draft.width, tuple(draft.nodes))
            for (number, group), draft in sorted(self._builders.items())
        ]

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        return self._strategy.start(limits, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        self._group = 0
        parents, after = self._observed.advance(frontier, log_probs, ruled)
        if self._observed is self._strategy:
            self._record_step(frontier, log_probs, ruled, parents, after)
        return parents, after

    def _record_step(
        self, frontier: Frontier, log_probs: Tensor, ruled: Tensor, parents: Tensor | None, after: Frontier
    ) -> None:
        width = frontier.width
        considered = self._find_candidates(frontier, log_probs, ruled, joint=parents is not None)
        rejected = self._find_rejected(frontier, log_probs, ruled)
        rows = torch.arange(after.length.size(0), device=after.ids.device) if parents is None else parents
        added = log_probs[rows, after.last[:, 0]].view(-1, width).tolist()
        follows = (rows.view(-1, width) % width).tolist()
        before, then = _snapshot_rows(frontier, self._ranking), _snapshot_rows(after, None)
        answers = then if after.finished is None else _snapshot_rows(after.finished, None)
        numbers = frontier.limits.request_id[::width].tolist()
        for index, number in enumerate(numbers):
            if any(before[index].open):
                step = StepRecord(
                    before[index],
                    then[index],
                    answers[index],
                    follows[index],
                    added[index],
                    parents is not None,
                    self._strategy.free_end,
                    *considered[index],
                    rejected.get(index, []),
                )
                self._builder_for(number, before[index]).add(step)
        self._group += 1

    def _builder_for(self, number: int, before: RowSnapshot) -> TreeBuilder:
        key = number, self._group
        if not any(before.ids):
            self._builders[key] = TreeBuilder(len(before.ids))
        return self._builders[key]

    def _find_candidates(
        self, frontier: Frontier, log_probs: Tensor, ruled: Tensor, joint: bool
    ) -> list[tuple[list[CandidateRecord], list[CandidateRecord]]]:
        """Return the considered candidates of each sentence, and those that would be considered if not forbidden."""
        rows = frontier if joint else replace(frontier, width=1)
        most, best = (2 * frontier.width, frontier.width) if joint else (self._num_candidates, self._num_candidates)
        if isinstance(self._strategy, Beam):
            considered = self._strategy.select_candidates(rows, log_probs, ruled)
        else:
            considered = top_candidates(rows, log_probs, ruled, most)
        unruled = top_candidates(rows, log_probs, log_probs, best)
        allowed = ruled[unruled.parents, unruled.ids] != NEG_INF
        forbidden = replace(unruled, log_probability=unruled.log_probability.masked_fill(allowed, NEG_INF))
        return list(
            zip(
                _list_candidates(rows, considered, frontier.width, self._ranking),
                _list_candidates(rows, forbidden, frontier.width, None),
                strict=True,
            )
        )

    def _find_rejected(
        self, frontier: Frontier, log_probs: Tensor, ruled: Tensor
    ) -> dict[int, list[tuple[CandidateRecord, Fate]]]:
        """Return the candidates rejected for required phrases, by sentence index."""
        if not isinstance(self._strategy, ConstrainedBeam):
            return {}
        rejected = defaultdict[int, list[tuple[CandidateRecord, Fate]]](list)
        for sentence, candidates in enumerate(self._strategy.list_rejected(frontier, ruled)):
            for rank, ((value, row, token, _), fate) in enumerate(candidates):
                index = sentence * frontier.width + row
                if frontier.open[index]:
                    record = CandidateRecord(row, token, float(log_probs[index, token]), value, None, rank)
                    rejected[sentence].append((record, fate))
        return rejected

    @property
    def _ranking(self) -> Ranking | None:
        return self._strategy.ranking


def _list_candidates(
    frontier: Frontier, best: Candidates, width: int, ranking: Ranking | None
) -> Iterator[list[CandidateRecord]]:
    """Yield the existing candidates of each sentence that continue an open row. Rows count from its first."""
    size = best.ids.size(1)
    grown = best.extend_rows(frontier, torch.arange(size, device=best.ids.device).expand_as(best.ids))
    there = (grown.value != NEG_INF) & grown.open
    scores: list[float | None] = [None] * there.size(0)
    if ranking is not None:
        scores = ranking.score(replace(grown, ended=best.ids.flatten() == EOS)).tolist()
    columns = (best.parents % width, best.ids, best.log_probability, grown.value)
    parents, ids, log_probability, values = (each.flatten().tolist() for each in columns)
    ranks = [*range(size)] * best.ids.size(0)
    records = list(map(CandidateRecord, parents, ids, log_probability, values, scores, ranks))
    together = size * (width // frontier.width)
    for first in range(0, len(records), together):
        yield [records[index] for index in range(first, first + together) if there[index]]


def _snapshot_rows(frontier: Frontier, ranking: Ranking | None) -> list[RowSnapshot]:
    """Return a snapshot of the rows of each sentence."""
    there = frontier.log_probability != NEG_INF
    rows = zip(frontier.ids.tolist(), frontier.length.tolist(), strict=True)
    ids = [each[1 : length + 1] for each, length in rows]
    scores = [None] * len(ids) if ranking is None else ranking.score(frontier).tolist()
    flags = (there, frontier.open, frontier.full, frontier.ended, frontier.cut)
    columns: tuple[list[Any], ...] = (ids, frontier.value.tolist(), scores, *(each.tolist() for each in flags))
    return [
        RowSnapshot(*(each[first : first + frontier.width] for each in columns))
        for first in range(0, len(ids), frontier.width)
    ]
