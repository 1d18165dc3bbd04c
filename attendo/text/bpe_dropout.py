"""BPE-dropout (Provilkov et al. 2020): random segmentation, reproducible by key."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from attendo import keyed_random
from attendo.errors import UsageError
from attendo.keyed_random import Keys
from attendo.text.sentencepiece import PieceType, SentencePiece, SentencePieceEntry, iter_pieces, read_model_type

IdArray = NDArray[np.int32]
PositionArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
_NO_PAIR = np.iinfo(np.int64).max  # ends a sorted list, so that a search in it always ends at a number
_POSITION_SHIFT = np.uint64(32)  # a piece and its place in the word are one number
# Enough that words come again, few enough that the arrays stay small.
_MAX_BATCH_PIECES = 1 << 18
MAX_VARIANTS = 32
_DROPPED = np.iinfo(np.int64).max
_RANK_SHIFT = 32  # a priority is the rank of the merge and then its place: the smallest is best, and leftmost
_POSITION_MASK = (1 << _RANK_SHIFT) - 1


@dataclass(frozen=True)
class MergeTable:
    """Two pieces `left` and `right` of a model with V pieces are one number, left * V + right."""

    characters: IdArray  # of every piece, one after the other; what is never taken apart is its own character
    offsets: PositionArray  # where those of each piece begin, and where the last end
    rank: PositionArray  # of each piece: the lowest is merged first
    pairs: PositionArray  # those that make a piece, sorted
    merged: IdArray  # the pieces they make
    neighbours: PositionArray  # characters that stand side by side in some piece, sorted

    @classmethod
    def from_pieces(cls, pieces: Sequence[SentencePieceEntry]) -> "MergeTable":
        """Pieces with a character that is no piece itself are never taken apart, like bytes and symbols."""
        if unused := [piece.text for piece in pieces if piece.type == PieceType.UNUSED]:
            raise UsageError("dropout_with_unused_piece", piece=unused[0])
        numbers = {piece.text: number for number, piece in enumerate(pieces) if piece.type == PieceType.NORMAL}
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
            offsets=np.cumsum([0, *map(len, apart)]),
            rank=rank.astype(np.int64),
            pairs=np.array([*pairs, _NO_PAIR], np.int64),
            merged=np.array([*(merges[pair] for pair in pairs), -1], np.int32),
            neighbours=np.array([*sorted(beside), _NO_PAIR], np.int64),
        )

    def split_into_characters(self, ids: IdArray, offsets: PositionArray) -> tuple[IdArray, PositionArray]:
        """The characters of pieces, and where those of each sentence begin."""
        begin = self.offsets[ids]
        sizes = self.offsets[ids.astype(np.int64) + 1] - begin
        ends = np.cumsum(sizes)
        edges = np.concatenate([np.zeros(1, np.int64), ends])
        places = np.arange(edges[-1]) + np.repeat(begin - edges[:-1], sizes)
        return self.characters[places], edges[offsets]

    def first_character(self, ids: IdArray) -> IdArray:
        return self.characters[self.offsets[ids]]

    def last_character(self, ids: IdArray) -> IdArray:
        return self.characters[self.offsets[ids.astype(np.int64) + 1] - 1]

    def merge(self, left: IdArray, right: IdArray) -> IdArray:
        """The piece that each pair makes, -1 where it makes none."""
        wanted = self._pair_code(left, right)
        found = np.searchsorted(self.pairs, wanted)
        return np.where(self.pairs[found] == wanted, self.merged[found], np.int32(-1))

    def are_neighbours(self, left: IdArray, right: IdArray) -> BoolArray:
        """Whether some piece holds the two characters side by side."""
        wanted = self._pair_code(left, right)
        return np.asarray(self.neighbours[np.searchsorted(self.neighbours, wanted)] == wanted)

    def _pair_code(self, left: IdArray, right: IdArray) -> PositionArray:
        return left.astype(np.int64) * len(self.rank) + right


@dataclass(frozen=True)
class UniqueWords:
    """A form is a word, which is a row of pieces, together with the number of a variant."""

    word_index: PositionArray  # of each word of the text
    pieces: IdArray  # of each form, one after the other
    offsets: PositionArray  # where those of each form begin, and where the last end
    keys: Keys  # of each form: follows from its pieces and variant alone

    @classmethod
    def from_ids(cls, ids: IdArray, starts: PositionArray, variants: Keys) -> "UniqueWords":
        """Words begin at `starts`, the first at 0; `variants` has a number for each."""
        sizes = np.diff(np.append(starts, len(ids)))
        place_in_word = np.arange(len(ids)) - np.repeat(starts, sizes)
        placed = ids.astype(np.uint64) | place_in_word.astype(np.uint64) << _POSITION_SHIFT
        keys = numbers = keyed_random.make_keys(_sum_runs(keyed_random.make_keys(0, placed), starts), variants)
        for salt in count(1):
            _, first, form = np.unique(numbers, return_index=True, return_inverse=True)
            # Two words with one number are next to impossible; still no word may become another one.
            if np.array_equal(sizes[first][form], sizes):
                alike = np.repeat(starts[first][form], sizes) + place_in_word
                if np.array_equal(ids[alike], ids):
                    break
            numbers = keyed_random.make_keys(_sum_runs(keyed_random.make_keys(salt, placed), starts), variants)
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[first])])
        places = np.arange(edges[-1]) + np.repeat(starts[first] - edges[:-1], sizes[first])
        return cls(form, ids[places], edges, keys[first])


def _sum_runs(numbers: Keys, starts: PositionArray) -> Keys:
    """Of each run that begins at one of `starts`."""
    return np.add.reduceat(numbers, starts) if len(starts) else np.zeros(0, np.uint64)


class BPEDropout:
    """Takes pieces apart into characters and merges them again, refusing each possible merge with probability `rate`.

    In every step of a word each possible merge is refused or not; of the others the best one is done, the leftmost of
    equals. A word ends when none is left, so a refused merge may still come in a later step. A word here is a run of
    characters of which any two neighbours stand side by side in some piece: no merge can reach beyond it. With rate
    0 the pieces are those of `encode`. Bytes and symbols stay as they are.

    Most words of a text have been seen before, so a word is cut in at most `MAX_VARIANTS` ways a round (an epoch), each
    drawn with the chances above, and each time it is met it takes one of them. That is several times as fast, and for
    the word met once the same.
    """

    def __init__(self, tokenizer: SentencePiece, rate: float) -> None:
        kind = read_model_type(tokenizer.model)
        if kind != "bpe":
            raise UsageError("dropout_without_merges", kind=kind)
        if not 0 <= rate < 1:
            raise UsageError("dropout_out_of_range", rate=rate)
        self.rate = rate
        self._table = MergeTable.from_pieces(list(iter_pieces(tokenizer.model)))

    def __call__(
        self, ids: IdArray, offsets: PositionArray, keys: Keys, round_key: Keys
    ) -> tuple[IdArray, PositionArray]:
        """Sentence i is `ids[offsets[i]:offsets[i + 1]]`, here and in the result.

        What becomes of it depends on `keys[i]` and the one key `round_key` alone.
        """
        if len(keys) != len(offsets) - 1:
            raise UsageError("dropout_key_count_mismatch", keys=len(keys), sentences=len(offsets) - 1)
        new_ids = [np.zeros(0, np.int32)]
        new_lengths = [np.zeros(1, np.int64)]
        begin = 0
        while begin < len(keys):
            full = int(np.searchsorted(offsets, offsets[begin] + _MAX_BATCH_PIECES, side="right")) - 1
            end = max(full, begin + 1)
            here = offsets[begin : end + 1]
            some_ids, some_lengths = self._resegment(
                ids[here[0] : here[-1]], here - here[0], keys[begin:end], round_key
            )
            new_ids.append(some_ids)
            new_lengths.append(some_lengths)
            begin = end
        return np.concatenate(new_ids), np.cumsum(np.concatenate(new_lengths))

    def _resegment(
        self, ids: IdArray, offsets: PositionArray, keys: Keys, round_key: Keys
    ) -> tuple[IdArray, PositionArray]:
        """The new pieces of some sentences, and how many each of them has."""
        starts = self._word_starts(ids, offsets)
        sentence = np.searchsorted(offsets, starts, side="right") - 1
        drawn = keyed_random.make_keys(keys[sentence], "variant", (starts - offsets[sentence]).astype(np.uint64))
        words = UniqueWords.from_ids(ids, starts, drawn % np.uint64(MAX_VARIANTS))
        cut, edges = self._merge_words(words, round_key)
        sizes = np.diff(edges)[words.word_index]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        places = np.arange(before[-1]) + np.repeat(edges[words.word_index] - before[:-1], sizes)
        return cut[places], np.diff(before[np.searchsorted(starts, offsets)])

    def _word_starts(self, ids: IdArray, offsets: PositionArray) -> PositionArray:
        """The first piece of each word: characters within a piece are neighbours, those of two may be."""
        begins = np.ones(len(ids), np.bool_)
        begins[1:] = ~self._table.are_neighbours(
            self._table.last_character(ids[:-1]), self._table.first_character(ids[1:])
        )
        begins[offsets[:-1][offsets[:-1] < len(ids)]] = True
        return np.flatnonzero(begins)

    def _merge_words(self, words: UniqueWords, round_key: Keys) -> tuple[IdArray, PositionArray]:
        """The new pieces of each form, one after the other, and where those of each begin and the last end."""
        units, edges = self._table.split_into_characters(words.pieces, words.offsets)
        sizes = np.diff(edges)
        place_in_word = np.arange(len(units)) - np.repeat(edges[:-1], sizes)
        joined = np.full(len(units), -1, np.int32)
        inner = np.flatnonzero(place_in_word[1:])  # all but the last character of a word
        joined[inner] = self._table.merge(units[inner], units[inner + 1])
        kept = np.ones(len(units), np.bool_)
        draws = keyed_random.make_keys(
            np.repeat(keyed_random.make_keys(round_key, words.keys), sizes), place_in_word.astype(np.uint64)
        )
        going = _ActiveWords(np.arange(len(units)), units.copy(), joined, draws, sizes)
        step = 0
        while len(going.lengths):
            going = self._merge_step(going, step, units, kept)
            step += 1
        counted = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        return units[kept], counted[edges]

    def _merge_step(self, words: "_ActiveWords", step: int, units: IdArray, kept: BoolArray) -> "_ActiveWords":
        """One step of every word, noted in `units` and `kept`; and the words that are not finished."""
        starts = np.cumsum(words.lengths) - words.lengths
        best = np.minimum.reduceat(self._compute_priorities(words, step), starts)
        going = best != _DROPPED
        left = best[going] & _POSITION_MASK
        units[words.positions[left]] = words.units[left] = words.merged[left]
        kept[words.positions[left + 1]] = False
        stays = np.repeat(going, words.lengths)
        stays[left + 1] = False
        rest = words.select(stays, words.lengths[going] - 1)
        new_starts = np.cumsum(rest.lengths) - rest.lengths
        self._update_pairs(rest, new_starts + left - starts[going], new_starts)
        return rest

    def _compute_priorities(self, words: "_ActiveWords", step: int) -> PositionArray:
        possible = np.flatnonzero(words.merged >= 0)
        if self.rate:
            possible = possible[keyed_random.uniform(words.random_keys[possible] + np.uint64(step)) >= self.rate]
        priorities = np.full(len(words.merged), _DROPPED)
        priorities[possible] = self._table.rank[words.merged[possible]] << _RANK_SHIFT | possible
        return priorities

    def _update_pairs(self, words: "_ActiveWords", merged: PositionArray, starts: PositionArray) -> None:
        """A merged piece, one in each word, has other pairs with its neighbours."""
        at_end = merged == starts + words.lengths - 1
        words.merged[merged[at_end]] = -1
        changed = np.concatenate([merged[~at_end], merged[merged > starts] - 1])
        words.merged[changed] = self._table.merge(words.units[changed], words.units[changed + 1])


@dataclass(frozen=True)
class _ActiveWords:
    """The pieces of unfinished words, one after the other."""

    positions: PositionArray  # where the piece begins in the text, in characters
    units: IdArray  # the piece
    merged: IdArray  # what it makes with the next one of its word, or -1
    random_keys: Keys  # from which it is refused
    lengths: PositionArray  # pieces of each word

    def select(self, stays: BoolArray, lengths: PositionArray) -> "_ActiveWords":
        return _ActiveWords(
            self.positions[stays], self.units[stays], self.merged[stays], self.random_keys[stays], lengths
        )
