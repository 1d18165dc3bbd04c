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
_NO_PAIR = np.iinfo(np.int64).max  # sentinel at the end of a sorted list, so that every search returns a valid index
_POSITION_SHIFT = np.uint64(32)  # packs a piece and its position in the word into one integer
# Large enough that words repeat, small enough that the arrays stay small.
_MAX_BATCH_PIECES = 1 << 18
MAX_VARIANTS = 32
_DROPPED = np.iinfo(np.int64).max
_RANK_SHIFT = 32  # a priority is the merge rank, then the position: the smallest is the best and leftmost
_POSITION_MASK = (1 << _RANK_SHIFT) - 1


@dataclass(frozen=True)
class MergeTable:
    """The merges of a BPE model with V pieces. The pair (left, right) is the integer left * V + right."""

    characters: IdArray  # of all pieces, concatenated; a piece that is never split is its own character
    offsets: PositionArray  # start of each piece in `characters`, and the total length
    rank: PositionArray  # of each piece; the lowest is merged first
    pairs: PositionArray  # pairs that form a piece, sorted
    merged: IdArray  # the pieces they form
    neighbours: PositionArray  # pairs of adjacent characters in any piece, sorted

    @classmethod
    def from_pieces(cls, pieces: Sequence[SentencePieceEntry]) -> "MergeTable":
        """Build from the pieces of a model. Bytes, symbols and pieces with an unknown character are never split."""
        if unused := [piece.text for piece in pieces if piece.type == PieceType.UNUSED]:
            raise UsageError("dropout_with_unused_piece", piece=unused[0])
        numbers = {piece.text: number for number, piece in enumerate(pieces) if piece.type == PieceType.NORMAL}
        spellings = {
            text: [numbers[each] for each in text] for text in numbers if all(each in numbers for each in text)
        }
        characters = [spellings.get(piece.text, [number]) for number, piece in enumerate(pieces)]
        neighbours = {left * len(pieces) + right for each in spellings.values() for left, right in pairwise(each)}
        merges = {
            numbers[text[:cut]] * len(pieces) + numbers[text[cut:]]: numbers[text]
            for text in spellings
            for cut in range(1, len(text))
            if text[:cut] in numbers and text[cut:] in numbers
        }
        pairs = sorted(merges)
        _, rank = np.unique([-piece.score for piece in pieces], return_inverse=True)
        return cls(
            characters=np.array([each for piece in characters for each in piece], np.int32),
            offsets=np.cumsum([0, *map(len, characters)]),
            rank=rank.astype(np.int64),
            pairs=np.array([*pairs, _NO_PAIR], np.int64),
            merged=np.array([*(merges[pair] for pair in pairs), -1], np.int32),
            neighbours=np.array([*sorted(neighbours), _NO_PAIR], np.int64),
        )

    def split_into_characters(self, ids: IdArray, offsets: PositionArray) -> tuple[IdArray, PositionArray]:
        """Return the characters of the pieces, and the start of each sentence in them."""
        begin = self.offsets[ids]
        sizes = self.offsets[ids.astype(np.int64) + 1] - begin
        ends = np.cumsum(sizes)
        edges = np.concatenate([np.zeros(1, np.int64), ends])
        indices = np.arange(edges[-1]) + np.repeat(begin - edges[:-1], sizes)
        return self.characters[indices], edges[offsets]

    def first_character(self, ids: IdArray) -> IdArray:
        return self.characters[self.offsets[ids]]

    def last_character(self, ids: IdArray) -> IdArray:
        return self.characters[self.offsets[ids.astype(np.int64) + 1] - 1]

    def merge(self, left: IdArray, right: IdArray) -> IdArray:
        """Return the piece that each pair forms, or -1."""
        codes = self._pair_code(left, right)
        found = np.searchsorted(self.pairs, codes)
        return np.where(self.pairs[found] == codes, self.merged[found], np.int32(-1))

    def are_neighbours(self, left: IdArray, right: IdArray) -> BoolArray:
        """Whether the two characters are adjacent in any piece."""
        codes = self._pair_code(left, right)
        return np.asarray(self.neighbours[np.searchsorted(self.neighbours, codes)] == codes)

    def _pair_code(self, left: IdArray, right: IdArray) -> PositionArray:
        return left.astype(np.int64) * len(self.rank) + right


@dataclass(frozen=True)
class UniqueWords:
    """Distinct forms. A form is a word (a sequence of pieces) and the number of a variant."""

    word_index: PositionArray  # form of each word of the text
    pieces: IdArray  # of all forms, concatenated
    offsets: PositionArray  # start of each form in `pieces`, and the total length
    keys: Keys  # of each form, a hash of its pieces and variant

    @classmethod
    def from_ids(cls, ids: IdArray, starts: PositionArray, variants: Keys) -> "UniqueWords":
        """Words begin at `starts`, the first at 0. `variants` has one number per word."""
        sizes = np.diff(np.append(starts, len(ids)))
        position_in_word = np.arange(len(ids)) - np.repeat(starts, sizes)
        positioned = ids.astype(np.uint64) | position_in_word.astype(np.uint64) << _POSITION_SHIFT
        keys = numbers = keyed_random.make_keys(_sum_runs(keyed_random.make_keys(0, positioned), starts), variants)
        for salt in count(1):
            _, first, form = np.unique(numbers, return_index=True, return_inverse=True)
            # A hash collision is very unlikely, but it must not turn one word into another.
            if np.array_equal(sizes[first][form], sizes):
                alike = np.repeat(starts[first][form], sizes) + position_in_word
                if np.array_equal(ids[alike], ids):
                    break
            numbers = keyed_random.make_keys(_sum_runs(keyed_random.make_keys(salt, positioned), starts), variants)
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[first])])
        indices = np.arange(edges[-1]) + np.repeat(starts[first] - edges[:-1], sizes[first])
        return cls(form, ids[indices], edges, keys[first])


def _sum_runs(numbers: Keys, starts: PositionArray) -> Keys:
    """Return the sum of each run that begins at one of `starts`."""
    return np.add.reduceat(numbers, starts) if len(starts) else np.zeros(0, np.uint64)


class BPEDropout:
    """Splits pieces into characters and merges them again, dropping each merge with probability `rate`.

    In every step of a word each possible merge is dropped or not. The best of the others is applied, the leftmost of
    ties. A word is finished when a step has no merge left, so a dropped merge may still be applied in a later step. A
    word here is a run of characters in which any two neighbours are adjacent in some piece, so no merge crosses its
    ends. With rate 0 the pieces are those of `encode`. Bytes and symbols are unchanged.

    Most words of a text repeat, so each word has at most `MAX_VARIANTS` random segmentations per round (an epoch). Each
    occurrence uses one of them. This is several times as fast. For a word that occurs once the distribution is the
    same.
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
        """Resegment sentences. Sentence i is `ids[offsets[i]:offsets[i + 1]]`, here and in the result.

        The result for sentence i depends only on `keys[i]` and `round_key`.
        """
        if len(keys) != len(offsets) - 1:
            raise UsageError("dropout_key_count_mismatch", keys=len(keys), sentences=len(offsets) - 1)
        new_ids = [np.zeros(0, np.int32)]
        new_lengths = [np.zeros(1, np.int64)]
        begin = 0
        while begin < len(keys):
            full = int(np.searchsorted(offsets, offsets[begin] + _MAX_BATCH_PIECES, side="right")) - 1
            end = max(full, begin + 1)
            batch_offsets = offsets[begin : end + 1]
            some_ids, some_lengths = self._resegment(
                ids[batch_offsets[0] : batch_offsets[-1]], batch_offsets - batch_offsets[0], keys[begin:end], round_key
            )
            new_ids.append(some_ids)
            new_lengths.append(some_lengths)
            begin = end
        return np.concatenate(new_ids), np.cumsum(np.concatenate(new_lengths))

    def _resegment(
        self, ids: IdArray, offsets: PositionArray, keys: Keys, round_key: Keys
    ) -> tuple[IdArray, PositionArray]:
        """Return the new pieces of a batch of sentences, and the number of pieces of each."""
        starts = self._word_starts(ids, offsets)
        sentence = np.searchsorted(offsets, starts, side="right") - 1
        variant_keys = keyed_random.make_keys(keys[sentence], "variant", (starts - offsets[sentence]).astype(np.uint64))
        words = UniqueWords.from_ids(ids, starts, variant_keys % np.uint64(MAX_VARIANTS))
        new_pieces, edges = self._merge_words(words, round_key)
        sizes = np.diff(edges)[words.word_index]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        indices = np.arange(before[-1]) + np.repeat(edges[words.word_index] - before[:-1], sizes)
        return new_pieces[indices], np.diff(before[np.searchsorted(starts, offsets)])

    def _word_starts(self, ids: IdArray, offsets: PositionArray) -> PositionArray:
        """Return the index of the first piece of each word. Characters within a piece are always neighbours."""
        begins = np.ones(len(ids), np.bool_)
        begins[1:] = ~self._table.are_neighbours(
            self._table.last_character(ids[:-1]), self._table.first_character(ids[1:])
        )
        begins[offsets[:-1][offsets[:-1] < len(ids)]] = True
        return np.flatnonzero(begins)

    def _merge_words(self, words: UniqueWords, round_key: Keys) -> tuple[IdArray, PositionArray]:
        """Return the new pieces of all forms, concatenated, and the start of each form."""
        units, edges = self._table.split_into_characters(words.pieces, words.offsets)
        sizes = np.diff(edges)
        position_in_word = np.arange(len(units)) - np.repeat(edges[:-1], sizes)
        merged = np.full(len(units), -1, np.int32)
        inner = np.flatnonzero(position_in_word[1:])  # all but the last character of a word
        merged[inner] = self._table.merge(units[inner], units[inner + 1])
        mask = np.ones(len(units), np.bool_)
        draws = keyed_random.make_keys(
            np.repeat(keyed_random.make_keys(round_key, words.keys), sizes), position_in_word.astype(np.uint64)
        )
        active = _ActiveWords(np.arange(len(units)), units.copy(), merged, draws, sizes)
        step = 0
        while len(active.lengths):
            active = self._merge_step(active, step, units, mask)
            step += 1
        piece_counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(mask)])
        return units[mask], piece_counts[edges]

    def _merge_step(self, words: "_ActiveWords", step: int, units: IdArray, mask: BoolArray) -> "_ActiveWords":
        """Apply one step to every word, write it to `units` and `mask`, and return the unfinished words."""
        starts = np.cumsum(words.lengths) - words.lengths
        best = np.minimum.reduceat(self._compute_priorities(words, step), starts)
        active = best != _DROPPED
        left = best[active] & _POSITION_MASK
        units[words.positions[left]] = words.units[left] = words.merged[left]
        mask[words.positions[left + 1]] = False
        remaining = np.repeat(active, words.lengths)
        remaining[left + 1] = False
        rest = words.select(remaining, words.lengths[active] - 1)
        new_starts = np.cumsum(rest.lengths) - rest.lengths
        self._update_pairs(rest, new_starts + left - starts[active], new_starts)
        return rest

    def _compute_priorities(self, words: "_ActiveWords", step: int) -> PositionArray:
        candidates = np.flatnonzero(words.merged >= 0)
        if self.rate:
            candidates = candidates[keyed_random.uniform(words.random_keys[candidates] + np.uint64(step)) >= self.rate]
        priorities = np.full(len(words.merged), _DROPPED)
        priorities[candidates] = self._table.rank[words.merged[candidates]] << _RANK_SHIFT | candidates
        return priorities

    def _update_pairs(self, words: "_ActiveWords", merged: PositionArray, starts: PositionArray) -> None:
        """Recompute the pairs of the merged piece of each word with its neighbours."""
        at_end = merged == starts + words.lengths - 1
        words.merged[merged[at_end]] = -1
        changed = np.concatenate([merged[~at_end], merged[merged > starts] - 1])
        words.merged[changed] = self._table.merge(words.units[changed], words.units[changed + 1])


@dataclass(frozen=True)
class _ActiveWords:
    """The pieces of unfinished words, concatenated."""

    positions: PositionArray  # start of the piece in the text, in characters
    units: IdArray  # the piece
    merged: IdArray  # the piece formed with the next one of its word, or -1
    random_keys: Keys  # keys of the dropout decisions
    lengths: PositionArray  # number of pieces per word

    def select(self, stays: BoolArray, lengths: PositionArray) -> "_ActiveWords":
        return _ActiveWords(
            self.positions[stays], self.units[stays], self.merged[stays], self.random_keys[stays], lengths
        )
