"""Streaming of text: the common prefix of all surviving hypotheses."""

from collections.abc import Sequence

from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.ranking import Ranking
from attendo.text import EOS, Tokenizer

_REPLACEMENT_CHARACTER = "\ufffd"  # decoded from a character whose bytes are incomplete


class StreamDecoder:
    """Streams one output incrementally. Emitted text is never retracted.

    A character is emitted once all of its bytes are known.
    """

    def __init__(self, ranking: Ranking, tokenizer: Tokenizer) -> None:
        self._ranking, self._tokenizer = ranking, tokenizer
        self._emitted = ""

    def push(self, frontier: Frontier) -> str:
        """Return the new text after a token, which may be empty."""
        alive = _surviving_ids(frontier.cpu(), self._ranking)
        # A single hypothesis is its own prefix, and its eos has no text.
        text = self._tokenizer.decode(common_prefix(alive)).rstrip(_REPLACEMENT_CHARACTER)
        return self.flush(text) if text.startswith(self._emitted) else ""

    def flush(self, text: str) -> str:
        """Return the part of the complete text that was not emitted yet."""
        new = text.removeprefix(self._emitted)
        self._emitted += new
        return new


def _surviving_ids(frontier: Frontier, ranking: Ranking) -> list[list[int]]:
    """Return the ids of open rows that can still win, and of the best finished rows."""
    going = frontier.open & (frontier.log_probability != NEG_INF)
    rows = [_row_ids(frontier, row) for row in going.nonzero()[:, 0].tolist()]
    if frontier.finished is None:
        return rows or [_row_ids(frontier, row) for row in range(frontier.length.size(0))]
    finished = frontier.finished
    ended = finished.ended & (finished.log_probability != NEG_INF)
    scores = ranking.score(finished).masked_fill(~ended, NEG_INF)
    best = scores.max()
    if ended.any():
        hopeful = going & (ranking.best_possible(frontier) >= best)
        rows = [_row_ids(frontier, row) for row in hopeful.nonzero()[:, 0].tolist()]
        rows += [_row_ids(finished, row) for row in (ended & (scores == best)).nonzero()[:, 0].tolist()]
    return rows


def common_prefix(rows: Sequence[list[int]]) -> list[int]:
    """Return the common prefix of all rows, empty without rows."""
    first, *others = rows or [[]]
    length = next((n for n, ids in enumerate(first) if any(row[n : n + 1] != [ids] for row in others)), len(first))
    return first[:length]


def _row_ids(frontier: Frontier, row: int) -> list[int]:
    ids = frontier.ids[row, 1 : int(frontier.length[row]) + 1].tolist()
    return ids[:-1] if ids and ids[-1] == EOS else ids
