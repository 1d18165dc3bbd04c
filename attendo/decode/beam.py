"""Beam search with its stop rules, and the top-k selection that it uses."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from attendo.decode.frontier import NEG_INF, Frontier, RowLimits, difference, zip_tensors
from attendo.decode.ranking import Ranking
from attendo.errors import UsageError
from attendo.text import EOS

Stop = Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"]
_CHUNK = 256
_MIN_CHUNKED_SIZE = 4096  # from so many numbers a sentence the detour pays


@dataclass(frozen=True)
class Beam:
    """A step looks at the 2·width best continuations (y, v) of a sentence, by value(y) + log p(v | y).

    Those among the best width that end in eos are finished; the best width of those that do not end go on. Of the
    finished, the best patience·width are kept, by the score of the ranking. A sentence is done when as many are
    finished and, by the stop rule,

        first        at once
        settled      when no row that goes on scores better, at the length it has, than the worst of them
        exhaustive   when no row that goes on can come to score better, whatever follows

    where `first` may lose a probable long answer to short ones, hardly probable, that filled the beam before it. Other
    systems have other rules (`likes.py`):

        first_come   as first, but what has finished is not pushed out by better ones that finish later
        leader       when `num_hypotheses` are finished, and one of them was the best continuation of all when it ended
        shrinking    when no row is left: each that finishes takes a row away, and a step looks at no more continuations
                     than there are rows

    It is done too when nothing can go on, or its limit has come: rows that are full and whose eos is not among the best
    width are then cut. Finished hypotheses stand before cut ones. With a free end, the best width continuations of full
    rows are all finished, those that do not end in eos marked as cut. Rows without a hypothesis have log-probability -∞
    and stand last. A width of 1 is greedy.
    """

    supports_prefill: ClassVar[bool] = True

    width: int
    ranking: Ranking = field(default_factory=Ranking)
    stop: Stop = "settled"
    patience: float = 1.0  # with stop rule first: Kasai et al. 2022
    num_hypotheses: int = field(default=1, kw_only=True)  # with stop rule leader: hypotheses of an answer
    free_end: bool = field(default=False, kw_only=True)  # at the limit any token may be the last

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError("beam_width_below_one", width=self.width)
        if self.patience <= 0:
            raise UsageError("patience_not_positive", patience=self.patience)

    @property
    def max_finished(self) -> int:
        """Hypotheses of a sentence."""
        return math.ceil(self.patience * self.width)

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        """All rows of a sentence are alike at first, so only one of them counts."""
        rows = Frontier.start(limits, self.width, capacity)
        counts = torch.arange(rows.length.size(0), device=rows.length.device) % self.width == 0
        kept = Frontier.start(limits, self.max_finished, rows.ids.size(1))
        nothing = torch.full_like(kept.log_probability, NEG_INF)
        led = torch.zeros_like(kept.open) if self.stop == "leader" else None
        return replace(
            rows,
            log_probability=torch.where(counts, 0.0, NEG_INF),
            finished=replace(kept, log_probability=nothing, open=~kept.open, was_top=led),
        )

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        assert frontier.finished is not None  # start has seen to it
        best = self.select_candidates(frontier, log_probs, ruled)
        parents, going = self._continue_rows(frontier, best)
        stuck = self._all_in_sentence(going.log_probability == NEG_INF)
        finishing = self._finishing_mask(frontier, best)
        at_end = stuck if self.free_end else frontier.full | stuck
        finished = frontier.finished
        if not is_on_host(at_end) or finishing.any() or at_end.any():  # otherwise it comes to the same
            ended, cut = (
                self._finish_candidates(frontier, best, finishing),
                self._cut_rows(frontier, best, finishing, at_end),
            )
            was_open = frontier.open.view(-1, self.width)[:, :1].expand(-1, self.max_finished).flatten()
            finished = self._merge_finished(finished, ended, cut).where(was_open, finished)
        done = frontier.full | stuck | self._is_done(finished, going)
        return parents, replace(going, open=frontier.open & ~done, finished=finished)

    def select_candidates(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> "Candidates":
        """What may end if it is among the first `width`, and go on if it is among the first `width` that do not end."""
        found = top_candidates(frontier, log_probs, ruled, 2 * self.width)
        if self.stop != "shrinking":
            return found
        assert frontier.finished is not None
        taken = frontier.finished.ended.view(-1, self.max_finished).sum(dim=1, keepdim=True)
        beyond = torch.arange(found.ids.size(1), device=taken.device) >= self.width - taken
        return replace(found, log_probability=found.log_probability.masked_fill(beyond, NEG_INF))

    def best_first(self, frontier: Frontier) -> Int[Tensor, "B N"]:
        """The order of the hypotheses of each sentence, finished before cut."""
        scores = self.ranking.score(frontier).view(-1, frontier.width)
        by_score = scores.argsort(dim=1, descending=True, stable=True)
        standing = self.rank_class(frontier).view_as(scores).gather(1, by_score)
        return by_score.gather(1, standing.argsort(dim=1, stable=True))

    def rank_class(self, frontier: Frontier) -> Integer[Tensor, " R"]:
        """Which hypotheses come before others whatever they score: those with the lower number."""
        return (~frontier.ended).byte()

    def _continue_rows(self, frontier: Frontier, best: "Candidates") -> tuple[Int[Tensor, " R"], Frontier]:
        """The best `width` continuations that do not end: at most one of a row does, so there are as many."""
        order = (best.ids == EOS).byte().argsort(dim=1, stable=True)[:, : self.width]
        return best.parents.gather(1, order).flatten(), best.extend_rows(frontier, order)

    def _finishing_mask(self, frontier: Frontier, best: "Candidates") -> Bool[Tensor, "B W"]:
        first = slice(self.width)
        ends = best.ids[:, first] == EOS
        if self.free_end:
            ends = ends | frontier.full.view(-1, self.width)[:, :1]
        return (best.log_probability[:, first] != NEG_INF) & ends

    def _finish_candidates(self, frontier: Frontier, best: "Candidates", finishing: Bool[Tensor, "B W"]) -> Frontier:
        """The first `width` continuations, with nothing where they do not end."""
        ended, order = finishing.flatten(), torch.arange(self.width, device=finishing.device)
        grown = best.extend_rows(frontier, order.expand_as(finishing))
        log_probability = grown.log_probability.masked_fill(~ended, NEG_INF)
        cut = ended & (best.ids[:, : self.width].flatten() != EOS)
        led = (finishing & (order == 0)).flatten() if self.stop == "leader" else None
        return replace(grown, log_probability=log_probability, ended=ended, cut=cut, was_top=led)

    def _cut_rows(
        self, frontier: Frontier, best: "Candidates", finishing: Bool[Tensor, "B W"], at_end: Bool[Tensor, " R"]
    ) -> Frontier:
        """The rows that can go no further and do not end; nothing while there is room."""
        rows = torch.arange(at_end.size(0), device=at_end.device).view(-1, self.width, 1)
        ends = ((best.parents[:, None, : self.width] == rows) & finishing[:, None]).any(dim=-1).flatten()
        log_probability = frontier.log_probability.masked_fill(ends | ~at_end, NEG_INF)
        led = torch.zeros_like(ends) if self.stop == "leader" else None
        return replace(frontier, log_probability=log_probability, cut=torch.ones_like(ends), finished=None, was_top=led)

    def _merge_finished(self, before: Frontier, ended: Frontier, cut: Frontier) -> Frontier:
        """The best hypotheses of each sentence."""
        together = concat_rows(concat_rows(before, ended), cut)
        if self.stop == "first_come":
            together = gather_rows(together, self._finished_first(together, before.width))
        chosen = gather_rows(together, self.best_first(together)[:, : self.max_finished])
        return replace(chosen, open=torch.zeros_like(chosen.open))

    def _finished_first(self, together: Frontier, before: int) -> Int[Tensor, "B N"]:
        """Places for as many as are kept: those that had finished before first, then by their standing and score."""
        by_score = self.best_first(together)
        ended = together.ended.view_as(by_score).gather(1, by_score)
        turn = (by_score >= before).byte().masked_fill(~ended, 2)
        return by_score.gather(1, turn.argsort(dim=1, stable=True))[:, : self.max_finished]

    def _is_done(self, finished: Frontier, going: Frontier) -> Bool[Tensor, " R"]:
        """In every row of a sentence, whether what is finished will do."""
        ended = finished.ended.view(-1, self.max_finished)
        enough = ended.all(dim=1, keepdim=True)
        if self.stop == "leader":
            assert finished.was_top is not None  # start has seen to it
            led = finished.was_top.view(-1, self.max_finished).any(dim=1, keepdim=True)
            enough = led & (ended.sum(dim=1, keepdim=True) >= self.num_hypotheses)
        elif self.stop in ("settled", "exhaustive"):
            worst = self.ranking.score(finished).view(-1, self.max_finished)[:, -1:]
            hopes = self.ranking.best_possible if self.stop == "exhaustive" else self.ranking.score
            enough = enough & (hopes(going).view(-1, self.width) <= worst).all(dim=1, keepdim=True)
        return enough.expand(-1, self.width).flatten()

    def _all_in_sentence(self, rows: Bool[Tensor, " R"]) -> Bool[Tensor, " R"]:
        """True in every row of a sentence where it is true of all of them."""
        return rows.view(-1, self.width).all(dim=1, keepdim=True).expand(-1, self.width).flatten()


@dataclass(frozen=True)
class Candidates:
    """The best ways to go on, in order: the row that is continued, the next id, and what that adds."""

    parents: Int[Tensor, "B C"]
    ids: Int[Tensor, "B C"]
    log_probability: Float[Tensor, "B C"]  # of the id; -∞ where there is no such way
    penalty: Float[Tensor, "B C"]

    def extend_rows(self, frontier: Frontier, order: Int[Tensor, "B W"]) -> Frontier:
        """The rows that these of the continuations lead to."""
        parents, ids, log_probability, penalty = (
            each.gather(1, order).flatten() for each in (self.parents, self.ids, self.log_probability, self.penalty)
        )
        before = frontier.select(parents, order.size(1))
        return replace(
            before,
            ids=before.with_token(ids, before.open),
            length=before.length + before.open,
            log_probability=before.log_probability + log_probability,
            penalty=before.penalty + penalty,
        )


def top_candidates(
    frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"], count: int
) -> Candidates:
    """Of each sentence the best by value, of equals the one of the first row."""
    width, vocabulary = frontier.width, log_probs.size(-1)
    values, places = beam_topk(
        ruled.unflatten(0, (-1, width)), frontier.value.view(-1, width), min(count, width * vocabulary)
    )
    log_probability = log_probs.reshape(-1, width * vocabulary).gather(1, places)
    ruled_value = ruled.reshape(-1, width * vocabulary).gather(1, places)
    there_is = values != NEG_INF
    first = torch.arange(0, log_probs.size(0), width, device=places.device)[:, None]
    return Candidates(
        parents=first + places // vocabulary,
        ids=places % vocabulary,
        log_probability=torch.where(there_is, log_probability, NEG_INF),
        penalty=torch.where(there_is, difference(ruled_value, log_probability), 0.0),
    )


def is_on_host(numbers: Tensor) -> bool:
    """Whether one may look at them: a GPU would have to be waited for, and what is compiled has none yet."""
    return numbers.device.type == "cpu" and not torch.compiler.is_compiling()


def gather_rows(frontier: Frontier, order: Int[Tensor, "B N"]) -> Frontier:
    """Of each sentence these rows."""
    first = torch.arange(0, frontier.length.size(0), frontier.width, device=order.device)[:, None]
    return frontier.select((first + order).flatten(), order.size(1))


def concat_rows(one: Frontier, other: Frontier) -> Frontier:
    """The rows of each sentence of the one, and behind them those of the other."""

    def join(first: Tensor, second: Tensor) -> Tensor:
        parts = [each.unflatten(0, (-1, width)) for each, width in ((first, one.width), (second, other.width))]
        return torch.cat(parts, dim=1).flatten(0, 1)

    return replace(zip_tensors(one, other, join), width=one.width + other.width)


def argmax_rows(numbers: Float[Tensor, "R V"]) -> Int[Tensor, " R"]:
    """Where the largest number of each row is, of equals the first."""
    if numbers.is_cuda or torch.compiler.is_compiling():
        return numbers.argmax(dim=-1)
    return torch.from_numpy(numbers.numpy().argmax(-1))  # on a CPU torch looks at one number after the other


def beam_topk(
    numbers: Float[Tensor, "B W V"], added: Float[Tensor, "B W"], count: int
) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """Of each sentence the `count` largest of what its rows have, `added` to all of a row; the largest first.

    Places are counted through all rows of the sentence.
    """
    size = numbers.size(1) * numbers.size(2)
    if size < _MIN_CHUNKED_SIZE or count > numbers.size(1) * (numbers.size(2) // _CHUNK):
        best = (numbers + added[..., None]).flatten(1).topk(count)
        return best.values, best.indices
    return chunked_topk(numbers, added, count)


def chunked_topk(
    numbers: Float[Tensor, "B W V"], added: Float[Tensor, "B W"], count: int
) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """The same in one pass over all numbers: the best `count` lie in the `count` chunks with the largest maxima."""
    size, inside = numbers.size(2), torch.arange(_CHUNK, device=numbers.device)
    maxima = _chunk_maxima(numbers) + added[..., None]  # [B, W, N]
    likely = maxima.flatten(1).topk(count).indices[..., None]  # [B, C, 1]
    row, column = likely // maxima.size(2), likely % maxima.size(2) * _CHUNK + inside  # [B, C, _CHUNK]
    places = (row * size + column.clamp(max=size - 1)).flatten(1)
    few = numbers.flatten(1).gather(1, places).view_as(column) + added.gather(1, row[..., 0])[..., None]
    best = few.masked_fill(column >= size, NEG_INF).flatten(1).topk(count)
    return best.values, places.gather(1, best.indices)


def _chunk_maxima(numbers: Float[Tensor, "*S V"]) -> Float[Tensor, "*S N"]:
    """Of each chunk; the last may be shorter."""
    whole = numbers.size(-1) - numbers.size(-1) % _CHUNK
    parts = [numbers[..., :whole].unflatten(-1, (-1, _CHUNK)).amax(dim=-1)]
    if whole < numbers.size(-1):
        parts.append(numbers[..., whole:].amax(dim=-1, keepdim=True))
    return torch.cat(parts, dim=-1)
