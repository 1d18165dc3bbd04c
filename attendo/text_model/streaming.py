"""Text as it is decided: what all hypotheses that can still win begin with."""

from collections.abc import Iterator

from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.ranking import Ranking
from attendo.text import EOS, Tokenizer

_REPLACEMENT_CHARACTER = "\ufffd"  # how a character reads whose bytes have not all come


class StreamDecoder:
    """Tells one answer bit by bit. What was told is never taken back. A character comes when all of its bytes have."""

    def __init__(self, ranking: Ranking, tokenizer: Tokenizer) -> None:
        self._ranking, self._tokenizer = ranking, tokenizer
        self._emitted = ""

    def push(self, frontier: Frontier) -> str:
        """What is new after a token, which may be nothing."""
        alive = _surviving_ids(frontier.cpu(), self._ranking)
        # A single hypothesis is a prefix of itself, and its eos has no text.
        text = self._tokenizer.decode(_common_prefix(alive)).rstrip(_REPLACEMENT_CHARACTER)
        return self.flush(text) if text.startswith(self._emitted) else ""

    def flush(self, text: str) -> str:
        """What of the whole answer was not told yet."""
        new = text.removeprefix(self._emitted)
        self._emitted += new
        return new


def decided(frontiers: Iterator[Frontier], ranking: Ranking, tokenizer: Tokenizer) -> Iterator[tuple[str, Frontier]]:
    """After every token of one sentence what is new of the text, and how far the search has come."""
    teller = StreamDecoder(ranking, tokenizer)
    for frontier in frontiers:
        yield teller.push(frontier), frontier


def _surviving_ids(frontier: Frontier, ranking: Ranking) -> list[list[int]]:
    """The ids of rows that go on and may come to be the best, and of what is finished and is the best so far."""
    going = frontier.open & (frontier.log_probability != NEG_INF)
    told = [_row_ids(frontier, row) for row in going.nonzero()[:, 0].tolist()]
    if frontier.finished is None:
        return told or [_row_ids(frontier, row) for row in range(frontier.length.size(0))]
    finished = frontier.finished
    ended = finished.ended & (finished.log_probability != NEG_INF)
    scores = ranking.score(finished).masked_fill(~ended, NEG_INF)
    best = scores.max()
    if ended.any():
        hopeful = going & (ranking.best_possible(frontier) >= best)
        told = [_row_ids(frontier, row) for row in hopeful.nonzero()[:, 0].tolist()]
        told += [_row_ids(finished, row) for row in (ended & (scores == best)).nonzero()[:, 0].tolist()]
    return told


def _common_prefix(rows: list[list[int]]) -> list[int]:
    """What all of them begin with; nothing where there are none."""
    first, *others = rows or [[]]
    length = next((n for n, ids in enumerate(first) if any(row[n : n + 1] != [ids] for row in others)), len(first))
    return first[:length]


def _row_ids(frontier: Frontier, row: int) -> list[int]:
    ids = frontier.ids[row, 1 : int(frontier.length[row]) + 1].tolist()
    return ids[:-1] if ids and ids[-1] == EOS else ids
