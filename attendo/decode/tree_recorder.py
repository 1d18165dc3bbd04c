"""Recording: a strategy that chooses as another does, and remembers what there was to choose from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.beam import Beam, Continuations, continuations
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import NOTHING, Asked, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.search import Strategy
from attendo.decode.search_tree import Candidate, Draft, Fate, Rows, Step, Tree
from attendo.text import EOS

# What is told of each step: the rows, what the model and the rules say, and what was made of them.
Note = Callable[[Frontier, Tensor, Tensor, Tensor | None, Frontier], None]


class Recorder:
    """Gives the answers of the strategy it is made of, and then the trees of its searches.

    Of a beam, its 2·width best continuations are in them, and where phrases must be said as many that got no place;
    where each row chooses for itself, the `few` best of every row and the one that was chosen.
    """

    recordable = False  # as a CUDA graph: every step is looked at from the host
    tells_forbidden = True  # so the numbers from before the rules are needed

    def __init__(self, strategy: Strategy, few: int = 5) -> None:
        self._strategy, self._few = strategy, few
        self._listening = strategy
        if isinstance(strategy, DiverseBeam):
            self._listening = _ListeningGroups(**_fields_of(strategy), note=self._note)
        self._drafts: dict[tuple[int, int], Draft] = {}
        self._group = 0

    @property
    def width(self) -> int:
        return self._strategy.width

    @property
    def trees(self) -> list[Tree]:
        """By the number of the sentence and by group. Of a number that came again, the last search."""
        return [
            Tree(number, group, draft.width, tuple(draft.nodes))
            for (number, group), draft in sorted(self._drafts.items())
        ]

    def start(self, asked: Asked, capacity: int | None = None) -> Frontier:
        return self._strategy.start(asked, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        self._group = 0
        parents, after = self._listening.advance(frontier, log_probs, ruled)
        if self._listening is self._strategy:
            self._note(frontier, log_probs, ruled, parents, after)
        return parents, after

    def _note(
        self, frontier: Frontier, log_probs: Tensor, ruled: Tensor, parents: Tensor | None, after: Frontier
    ) -> None:
        width = frontier.width
        looked_at = self._looked_at(frontier, log_probs, ruled, together=parents is not None)
        left_out = self._left_out(frontier, log_probs, ruled)
        rows = torch.arange(after.length.size(0), device=after.ids.device) if parents is None else parents
        added = log_probs[rows, after.last[:, 0]].view(-1, width).tolist()
        follows = (rows.view(-1, width) % width).tolist()
        before, then = _plain(frontier, self._ranking), _plain(after, None)
        answers = then if after.finished is None else _plain(after.finished, None)
        numbers = frontier.asked.number[::width].tolist()
        for place, number in enumerate(numbers):
            if any(before[place].open):
                step = Step(
                    before[place],
                    then[place],
                    answers[place],
                    follows[place],
                    added[place],
                    parents is not None,
                    getattr(self._strategy, "free_end", False),
                    *looked_at[place],
                    left_out.get(place, []),
                )
                self._draft_of(number, before[place]).add(step)
        self._group += 1

    def _draft_of(self, number: int, before: Rows) -> Draft:
        key = number, self._group
        if not any(before.ids):
            self._drafts[key] = Draft(len(before.ids))
        return self._drafts[key]

    def _looked_at(
        self, frontier: Frontier, log_probs: Tensor, ruled: Tensor, together: bool
    ) -> list[tuple[list[Candidate], list[Candidate]]]:
        """Of each sentence, what was considered and what would have been, were it not forbidden."""
        rows = frontier if together else replace(frontier, width=1)
        most, best = (2 * frontier.width, frontier.width) if together else (self._few, self._few)
        if isinstance(self._strategy, Beam):
            considered = self._strategy.considered(rows, log_probs, ruled)
        else:
            considered = continuations(rows, log_probs, ruled, most)
        unruled = continuations(rows, log_probs, log_probs, best)
        allowed = ruled[unruled.parents, unruled.ids] != NOTHING
        forbidden = replace(unruled, log_probability=unruled.log_probability.masked_fill(allowed, NOTHING))
        return list(
            zip(
                _listed(rows, considered, frontier.width, self._ranking),
                _listed(rows, forbidden, frontier.width, None),
                strict=True,
            )
        )

    def _left_out(
        self, frontier: Frontier, log_probs: Tensor, ruled: Tensor
    ) -> dict[int, list[tuple[Candidate, Fate]]]:
        """Of each sentence, by its place, what phrases that must be said left no place for."""
        if not isinstance(self._strategy, ConstrainedBeam):
            return {}
        told: dict[int, list[tuple[Candidate, Fate]]] = {}
        for place, ways in enumerate(self._strategy.left_out(frontier, ruled)):
            first = place * frontier.width
            told[place] = [
                (Candidate(way.row, way.token, float(log_probs[first + way.row, way.token]), way.value, None, n), fate)
                for n, (way, fate) in enumerate(ways)
                if frontier.open[first + way.row]
            ]
        return told

    @property
    def _ranking(self) -> Ranking | None:
        return getattr(self._strategy, "ranking", None)


@dataclass(frozen=True)
class _ListeningBeam(Beam):
    """Tells what it does."""

    note: Note | None = None

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        parents, after = super().advance(frontier, log_probs, ruled)
        if self.note is not None:
            self.note(frontier, log_probs, ruled, parents, after)
        return parents, after


@dataclass(frozen=True)
class _ListeningGroups(DiverseBeam):
    """Its groups tell what they do, one after the other."""

    note: Note | None = None

    @property
    def beam(self) -> Beam:
        return _ListeningBeam(**_fields_of(super().beam), note=self.note)


def _fields_of(strategy: Beam | DiverseBeam) -> dict[str, Any]:
    return {field.name: getattr(strategy, field.name) for field in fields(strategy)}


def _listed(frontier: Frontier, best: Continuations, width: int, ranking: Ranking | None) -> Iterator[list[Candidate]]:
    """Of each sentence, those there are and that continue an open row; rows are counted from the sentence's first."""
    size = best.ids.size(1)
    grown = best.take(frontier, torch.arange(size, device=best.ids.device).expand_as(best.ids))
    there = (grown.value != NOTHING) & grown.open
    scores: list[float | None] = [None] * there.size(0)
    if ranking is not None:
        scores = ranking.score(replace(grown, ended=best.ids.flatten() == EOS)).tolist()
    columns = (best.parents % width, best.ids, best.log_probability, grown.value)
    parents, ids, log_probability, values = (each.flatten().tolist() for each in columns)
    places = [*range(size)] * best.ids.size(0)
    made = list(map(Candidate, parents, ids, log_probability, values, scores, places))
    together = size * (width // frontier.width)
    for first in range(0, len(made), together):
        yield [made[place] for place in range(first, first + together) if there[place]]


def _plain(frontier: Frontier, ranking: Ranking | None) -> list[Rows]:
    """Of each sentence."""
    there = frontier.log_probability != NOTHING
    rows = zip(frontier.ids.tolist(), frontier.length.tolist(), strict=True)
    ids = [each[1 : length + 1] for each, length in rows]
    scores = [None] * len(ids) if ranking is None else ranking.score(frontier).tolist()
    flags = (there, frontier.open, frontier.full, frontier.ended, frontier.cut)
    columns: tuple[list[Any], ...] = (ids, frontier.value.tolist(), scores, *(each.tolist() for each in flags))
    return [
        Rows(*(each[first : first + frontier.width] for each in columns))
        for first in range(0, len(ids), frontier.width)
    ]
