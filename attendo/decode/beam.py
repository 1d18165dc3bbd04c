"""Beam search with its stop rules, and the top-k selection that it uses."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from attendo.decode.frontier import NEG_INF, Frontier, RowLimits, difference, zip_tensors
from attendo.decode.ranking import Ranking
from attendo.decode.search import Strategy
from attendo.errors import UsageError
from attendo.text import EOS

Stop = Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"]
_CHUNK = 256
_MIN_CHUNKED_SIZE = 4096  # numbers per sentence from which the chunked top-k is faster


@dataclass(frozen=True)
class Beam(Strategy):
    """Beam search. A step considers the 2·width best continuations (y, v) of a sentence, by value(y) + log p(v | y).

    Continuations among the best `width` that end in EOS are finished. The best `width` that do not end are continued.
    The best patience·width finished hypotheses are kept, by the score of the ranking. A sentence is done when it has
    that many and the stop rule holds:

        first        at once
        settled      no open row, at its current length, scores better than the worst finished hypothesis
        exhaustive   no open row can ever score better, whatever tokens follow

    `first` may lose a probable long answer to improbable short ones that finish earlier. Other systems have other rules
    (`presets.py`):

        first_come   as first, but a finished hypothesis is never replaced by a better one that finishes later
        leader       `num_hypotheses` are finished, and one of them was the best continuation of all when it ended
        shrinking    no row is left: each finished hypothesis removes a row, and a step considers only as many
                     continuations as there are rows

    A sentence is also done if no row can continue, or at its length limit. Rows at the limit are then cut, unless their
    EOS is among the best `width`. Finished hypotheses rank before cut ones. With a free end, the best `width`
    continuations of full rows are all finished. Those without EOS are marked as cut. Rows without a hypothesis have
    log-probability -∞ and rank last. A width of 1 is greedy.
    """

    supports_prefill = True

    width: int
    ranking: Ranking = field(default_factory=Ranking)
    stop: Stop = "settled"
    patience: float = 1.0  # for stop rule first: Kasai et al. 2022
    num_hypotheses: int = field(default=1, kw_only=True)  # for stop rule leader: hypotheses per answer
    free_end: bool = field(default=False, kw_only=True)  # at the limit any token may be the last

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError("beam_width_below_one", width=self.width)
        if self.patience <= 0:
            raise UsageError("patience_not_positive", patience=self.patience)

    @property
    def max_finished(self) -> int:
        """Finished hypotheses kept per sentence."""
        return math.ceil(self.patience * self.width)

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        """Return the initial rows. All rows of a sentence are equal, so only the first has a finite log-probability."""
        rows = Frontier.start(limits, self.width, capacity)
        counts = torch.arange(rows.length.size(0), device=rows.length.device) % self.width == 0
        finished = Frontier.start(limits, self.max_finished, rows.ids.size(1))
        nothing = torch.full_like(finished.log_probability, NEG_INF)
        led = torch.zeros_like(finished.open) if self.stop == "leader" else None
        return replace(
            rows,
            log_probability=torch.where(counts, 0.0, NEG_INF),
            finished=replace(finished, log_probability=nothing, open=~finished.open, was_top=led),
        )

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        assert frontier.finished is not None  # `start` guarantees it
        best = self.select_candidates(frontier, log_probs, ruled)
        parents, going = self._continue_rows(frontier, best)
        stuck = self._all_in_sentence(going.log_probability == NEG_INF)
        finishing = self._finishing_mask(frontier, best)
        at_end = stuck if self.free_end else frontier.full | stuck
        finished = frontier.finished
        if not is_on_host(at_end) or finishing.any() or at_end.any():  # otherwise the result is the same
            ended = self._finish_candidates(frontier, best, finishing)
            cut = self._cut_rows(frontier, best, finishing, at_end)
            was_open = frontier.open.view(-1, self.width)[:, :1].expand(-1, self.max_finished).flatten()
            finished = self._merge_finished(finished, ended, cut).where(was_open, finished)
        closed = frontier.full | stuck | self._is_done(finished, going)
        return parents, replace(going, open=frontier.open & ~closed, finished=finished)

    def select_candidates(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> "Candidates":
        """Return candidates. They may end among the first `width`, or continue among the first `width` without EOS."""
        candidates = top_candidates(frontier, log_probs, ruled, 2 * self.width)
        if self.stop != "shrinking":
            return candidates
        assert frontier.finished is not None
        num_finished = frontier.finished.ended.view(-1, self.max_finished).sum(dim=1, keepdim=True)
        beyond = torch.arange(candidates.ids.size(1), device=num_finished.device) >= self.width - num_finished
        return replace(candidates, log_probability=candidates.log_probability.masked_fill(beyond, NEG_INF))

    def best_first(self, frontier: Frontier) -> Int[Tensor, "B N"]:
        """Return the order of the hypotheses of each sentence, best first. Finished hypotheses rank before cut ones."""
        return self.ranking.order(frontier, self.rank_class(frontier))

    def rank_class(self, frontier: Frontier) -> Integer[Tensor, " R"]:
        """Return the rank class of each row. Lower classes rank first, regardless of the score."""
        return (~frontier.ended).byte()

    def _continue_rows(self, frontier: Frontier, best: "Candidates") -> tuple[Int[Tensor, " R"], Frontier]:
        """Return the best `width` continuations without EOS. They always exist: each row has at most one EOS."""
        order = (best.ids == EOS).byte().argsort(dim=1, stable=True)[:, : self.width]
        return best.parents.gather(1, order).flatten(), best.extend_rows(frontier, order)

    def _finishing_mask(self, frontier: Frontier, best: "Candidates") -> Bool[Tensor, "B W"]:
        first = slice(self.width)
        ends = best.ids[:, first] == EOS
        if self.free_end:
            ends = ends | frontier.full.view(-1, self.width)[:, :1]
        return (best.log_probability[:, first] != NEG_INF) & ends

    def _finish_candidates(self, frontier: Frontier, best: "Candidates", finishing: Bool[Tensor, "B W"]) -> Frontier:
        """Return the first `width` continuations. Those that do not finish get log-probability -∞."""
        ended, order = finishing.flatten(), torch.arange(self.width, device=finishing.device)
        grown = best.extend_rows(frontier, order.expand_as(finishing))
        log_probability = grown.log_probability.masked_fill(~ended, NEG_INF)
        cut = ended & (best.ids[:, : self.width].flatten() != EOS)
        led = (finishing & (order == 0)).flatten() if self.stop == "leader" else None
        return replace(grown, log_probability=log_probability, ended=ended, cut=cut, was_top=led)

    def _cut_rows(
        self, frontier: Frontier, best: "Candidates", finishing: Bool[Tensor, "B W"], at_end: Bool[Tensor, " R"]
    ) -> Frontier:
        """Return the rows that cannot continue and do not end. Other rows get log-probability -∞."""
        rows = torch.arange(at_end.size(0), device=at_end.device).view(-1, self.width, 1)
        ends = ((best.parents[:, None, : self.width] == rows) & finishing[:, None]).any(dim=-1).flatten()
        log_probability = frontier.log_probability.masked_fill(ends | ~at_end, NEG_INF)
        led = torch.zeros_like(ends) if self.stop == "leader" else None
        return replace(frontier, log_probability=log_probability, cut=torch.ones_like(ends), finished=None, was_top=led)

    def _merge_finished(self, before: Frontier, ended: Frontier, cut: Frontier) -> Frontier:
        """Keep the best hypotheses of each sentence."""
        together = concat_rows(concat_rows(before, ended), cut)
        if self.stop == "first_come":
            together = gather_rows(together, self._order_finished_first(together, before.width))
        chosen = gather_rows(together, self.best_first(together)[:, : self.max_finished])
        return replace(chosen, open=torch.zeros_like(chosen.open))

    def _order_finished_first(self, together: Frontier, before: int) -> Int[Tensor, "B N"]:
        """Return the `max_finished` hypotheses to keep: earlier finished ones first, then by rank class and score."""
        by_score = self.best_first(together)
        ended = together.ended.view_as(by_score).gather(1, by_score)
        turn = (by_score >= before).byte().masked_fill(~ended, 2)
        return by_score.gather(1, turn.argsort(dim=1, stable=True))[:, : self.max_finished]

    def _is_done(self, finished: Frontier, going: Frontier) -> Bool[Tensor, " R"]:
        """Return, for every row, whether the stop rule ends its sentence."""
        ended = finished.ended.view(-1, self.max_finished)
        enough = ended.all(dim=1, keepdim=True)
        if self.stop == "leader":
            assert finished.was_top is not None  # `start` guarantees it
            led = finished.was_top.view(-1, self.max_finished).any(dim=1, keepdim=True)
            enough = led & (ended.sum(dim=1, keepdim=True) >= self.num_hypotheses)
        elif self.stop in ("settled", "exhaustive"):
            worst = self.ranking.score(finished).view(-1, self.max_finished)[:, -1:]
            hopes = self.ranking.best_possible if self.stop == "exhaustive" else self.ranking.score
            enough = enough & (hopes(going).view(-1, self.width) <= worst).all(dim=1, keepdim=True)
        return enough.expand(-1, self.width).flatten()

    def _all_in_sentence(self, rows: Bool[Tensor, " R"]) -> Bool[Tensor, " R"]:
        """Return True in every row of a sentence if all its rows are True."""
        return rows.view(-1, self.width).all(dim=1, keepdim=True).expand(-1, self.width).flatten()


@dataclass(frozen=True)
class Candidates:
    """The best continuations in order: the parent row, the next token, and its contribution to the value."""

    parents: Int[Tensor, "B C"]
    ids: Int[Tensor, "B C"]
    log_probability: Float[Tensor, "B C"]  # of the token; -∞ for an empty candidate
    penalty: Float[Tensor, "B C"]

    def extend_rows(self, frontier: Frontier, order: Int[Tensor, "B W"]) -> Frontier:
        """Return the rows extended by the selected candidates."""
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
    """Return the best candidates of each sentence by value. Ties go to the first row."""
    width, vocabulary = frontier.width, log_probs.size(-1)
    values, indices = beam_topk(
        ruled.unflatten(0, (-1, width)), frontier.value.view(-1, width), min(count, width * vocabulary)
    )
    log_probability = log_probs.reshape(-1, width * vocabulary).gather(1, indices)
    ruled_value = ruled.reshape(-1, width * vocabulary).gather(1, indices)
    there_is = values != NEG_INF
    first = torch.arange(0, log_probs.size(0), width, device=indices.device)[:, None]
    return Candidates(
        parents=first + indices // vocabulary,
        ids=indices % vocabulary,
        log_probability=torch.where(there_is, log_probability, NEG_INF),
        penalty=torch.where(there_is, difference(ruled_value, log_probability), 0.0),
    )


def is_on_host(numbers: Tensor) -> bool:
    """Return True on CPU outside torch.compile. Elsewhere, reading values would synchronise or break the graph."""
    return numbers.device.type == "cpu" and not torch.compiler.is_compiling()


def gather_rows(frontier: Frontier, order: Int[Tensor, "B N"]) -> Frontier:
    """Select these rows of each sentence."""
    first = torch.arange(0, frontier.length.size(0), frontier.width, device=order.device)[:, None]
    return frontier.select((first + order).flatten(), order.size(1))


def concat_rows(one: Frontier, other: Frontier) -> Frontier:
    """Concatenate the rows of each sentence: first those of `one`, then those of `other`."""

    def join(first: Tensor, second: Tensor) -> Tensor:
        parts = [each.unflatten(0, (-1, width)) for each, width in ((first, one.width), (second, other.width))]
        return torch.cat(parts, dim=1).flatten(0, 1)

    return replace(zip_tensors(one, other, join), width=one.width + other.width)


def argmax_rows(numbers: Float[Tensor, "R V"]) -> Int[Tensor, " R"]:
    """Return the index of the largest number of each row. Ties go to the first."""
    if numbers.is_cuda or torch.compiler.is_compiling():
        return numbers.argmax(dim=-1)
    return torch.from_numpy(numbers.numpy().argmax(-1))  # on a CPU, torch's argmax is not vectorised


def beam_topk(
    numbers: Float[Tensor, "B W V"], added: Float[Tensor, "B W"], count: int
) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """Return the `count` largest numbers of each sentence, largest first, after adding `added` to each row.

    Indices count through all rows of the sentence.
    """
    size = numbers.size(1) * numbers.size(2)
    if size < _MIN_CHUNKED_SIZE or count > numbers.size(1) * (numbers.size(2) // _CHUNK):
        best = (numbers + added[..., None]).flatten(1).topk(count)
        return best.values, best.indices
    return topk_by_chunks(numbers, added, count)


def topk_by_chunks(
    numbers: Float[Tensor, "B W V"], added: Float[Tensor, "B W"], count: int
) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """Compute the same in one pass: the best `count` are in the `count` chunks with the largest maxima."""
    size, inside = numbers.size(2), torch.arange(_CHUNK, device=numbers.device)
    maxima = _chunk_maxima(numbers) + added[..., None]  # [B, W, N]
    likely = maxima.flatten(1).topk(count).indices[..., None]  # [B, C, 1]
    row, column = likely // maxima.size(2), likely % maxima.size(2) * _CHUNK + inside  # [B, C, _CHUNK]
    indices = (row * size + column.clamp(max=size - 1)).flatten(1)
    few = numbers.flatten(1).gather(1, indices).view_as(column) + added.gather(1, row[..., 0])[..., None]
    best = few.masked_fill(column >= size, NEG_INF).flatten(1).topk(count)
    return best.values, indices.gather(1, best.indices)


def _chunk_maxima(numbers: Float[Tensor, "*S V"]) -> Float[Tensor, "*S N"]:
    """Return the maximum of each chunk. The last chunk may be shorter."""
    full_size = numbers.size(-1) - numbers.size(-1) % _CHUNK
    parts = [numbers[..., :full_size].unflatten(-1, (-1, _CHUNK)).amax(dim=-1)]
    if full_size < numbers.size(-1):
        parts.append(numbers[..., full_size:].amax(dim=-1, keepdim=True))
    return torch.cat(parts, dim=-1)
