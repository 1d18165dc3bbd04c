"""Which pieces of a BPE model make another piece, as arrays that answer for many pairs at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attendo.errors import UsageError
from attendo.text.sentencepiece_file import Piece, PieceKind

Ids = NDArray[np.int32]
Places = NDArray[np.int64]
Flags = NDArray[np.bool_]

_NO_PAIR = np.iinfo(np.int64).max  # ends a sorted list, so that a search in it always ends at a number


@dataclass(frozen=True)
class MergeTable:
    """Two pieces `left` and `right` of a model with V pieces are one number, left * V + right."""

    characters: Ids  # of every piece, one after the other; what is never taken apart is its own character
    first: Places  # where those of each piece begin, and where the last end
    rank: Places  # of each piece: the lowest is merged first
    pairs: Places  # those that make a piece, sorted
    joined: Ids  # the pieces they make
    neighbours: Places  # characters that stand side by side in some piece, sorted

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> "MergeTable":
        """Pieces with a character that is no piece itself are never taken apart, like bytes and symbols."""
        if unused := [piece.text for piece in pieces if piece.kind == PieceKind.UNUSED]:
            raise UsageError("dropout_with_unused_piece", piece=unused[0])
        numbers = {piece.text: number for number, piece in enumerate(pieces) if piece.kind == PieceKind.NORMAL}
        spelled = {text: [numbers[each] for each in text] for text in numbers if all(each in numbers for each in text)}
        apart = [spelled.get(piece.text, [number]) for number, piece in enumerate(pieces)]
        beside = {left * len(pieces) + right for each in spelled.values() for left, right in pairwise(each)}
        merges = {
            numbers[text[:cut]] * len(pieces) + numbers[text[cut:]]: numbers[text]
            for text in spelled
            for cut in range(1, len(text))
            if text[:cut] in numbers and text[cut:] in numbers
        }
        pairs = sorted(merges)
        _, rank = np.unique([-piece.score for piece in pieces], return_inverse=True)
        return cls(
            characters=np.array([each for piece in apart for each in piece], np.int32),
            first=np.cumsum([0, *map(len, apart)]),
            rank=rank.astype(np.int64),
            pairs=np.array([*pairs, _NO_PAIR], np.int64),
            joined=np.array([*(merges[pair] for pair in pairs), -1], np.int32),
            neighbours=np.array([*sorted(beside), _NO_PAIR], np.int64),
        )

    def apart(self, ids: Ids, offsets: Places) -> tuple[Ids, Places]:
        """The characters of pieces, and where those of each sentence begin."""
        begin = self.first[ids]
        sizes = self.first[ids.astype(np.int64) + 1] - begin
        ends = np.cumsum(sizes)
        edges = np.concatenate([np.zeros(1, np.int64), ends])
        places = np.arange(edges[-1]) + np.repeat(begin - edges[:-1], sizes)
        return self.characters[places], edges[offsets]

    def first_character(self, ids: Ids) -> Ids:
        return self.characters[self.first[ids]]

    def last_character(self, ids: Ids) -> Ids:
        return self.characters[self.first[ids.astype(np.int64) + 1] - 1]

    def join(self, left: Ids, right: Ids) -> Ids:
        """The piece that each pair makes, -1 where it makes none."""
        wanted = self._number(left, right)
        found = np.searchsorted(self.pairs, wanted)
        return np.where(self.pairs[found] == wanted, self.joined[found], np.int32(-1))

    def are_neighbours(self, left: Ids, right: Ids) -> Flags:
        """Whether some piece holds the two characters side by side."""
        wanted = self._number(left, right)
        return np.asarray(self.neighbours[np.searchsorted(self.neighbours, wanted)] == wanted)

    def _number(self, left: Ids, right: Ids) -> Places:
        return left.astype(np.int64) * len(self.rank) + right
