"""BPE-dropout (Provilkov et al. 2020): random segmentation, reproducible by key."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from attendo import keyed_random
from attendo.errors import UsageError
from attendo.keyed_random import Keys
from attendo.text.sentencepiece import Piece, PieceKind, SentencePiece, model_kind, pieces

Ids = NDArray[np.int32]
Places = NDArray[np.int64]
Flags = NDArray[np.bool_]
_NO_PAIR = np.iinfo(np.int64).max  # ends a sorted list, so that a search in it always ends at a number
_PLACE_SHIFT = np.uint64(32)  # a piece and its place in the word are one number
# Enough that words come again, few enough that the arrays stay small.
_PIECES_AT_ONCE = 1 << 18
VARIANTS = 32
_REFUSED = np.iinfo(np.int64).max
_RANK_SHIFT = 32  # a priority is the rank of the merge and then its place: the smallest is best, and leftmost
_PLACE = (1 << _RANK_SHIFT) - 1


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


@dataclass(frozen=True)
class WordForms:
    """A form is a word, which is a row of pieces, together with the number of a variant."""

    form: Places  # of each word of the text
    pieces: Ids  # of each form, one after the other
    edges: Places  # where those of each form begin, and where the last end
    keys: Keys  # of each form: follows from its pieces and variant alone

    @classmethod
    def of(cls, ids: Ids, starts: Places, variants: Keys) -> "WordForms":
        """Words begin at `starts`, the first at 0; `variants` has a number for each."""
        sizes = np.diff(np.append(starts, len(ids)))
        place_in_word = np.arange(len(ids)) - np.repeat(starts, sizes)
        placed = ids.astype(np.uint64) | place_in_word.astype(np.uint64) << _PLACE_SHIFT
        keys = numbers = keyed_random.keys(_sums(keyed_random.keys(0, placed), starts), variants)
        for salt in count(1):
            _, first, form = np.unique(numbers, return_index=True, return_inverse=True)
            # Two words with one number are next to impossible; still no word may become another one.
            if np.array_equal(sizes[first][form], sizes):
                alike = np.repeat(starts[first][form], sizes) + place_in_word
                if np.array_equal(ids[alike], ids):
                    break
            numbers = keyed_random.keys(_sums(keyed_random.keys(salt, placed), starts), variants)
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[first])])
        places = np.arange(edges[-1]) + np.repeat(starts[first] - edges[:-1], sizes[first])
        return cls(form, ids[places], edges, keys[first])


def _sums(numbers: Keys, starts: Places) -> Keys:
    """Of each run that begins at one of `starts`."""
    return np.add.reduceat(numbers, starts) if len(starts) else np.zeros(0, np.uint64)


class MergeDropout:
    """Takes pieces apart into characters and merges them again, refusing each possible merge with probability `rate`.

    In every step of a word each possible merge is refused or not; of the others the best one is done, the leftmost of
    equals. A word ends when none is left, so a refused merge may still come in a later step. A word here is a run of
    characters of which any two neighbours stand side by side in some piece: no merge can reach beyond it. With rate
    0 the pieces are those of `encode`. Bytes and symbols stay as they are.

    Most words of a text have been seen before, so a word is cut in at most `VARIANTS` ways a round (an epoch), each
    drawn with the chances above, and each time it is met it takes one of them. That is several times as fast, and for
    the word met once the same.
    """

    def __init__(self, tokenizer: SentencePiece, rate: float) -> None:
        kind = model_kind(tokenizer.model)
        if kind != "bpe":
            raise UsageError("dropout_without_merges", kind=kind)
        if not 0 <= rate < 1:
            raise UsageError("dropout_out_of_range", rate=rate)
        self.rate = rate
        self._table = MergeTable.of(list(pieces(tokenizer.model)))

    def __call__(self, ids: Ids, offsets: Places, keys: Keys, of_round: Keys) -> tuple[Ids, Places]:
        """Sentence i is `ids[offsets[i]:offsets[i + 1]]`, here and in the result.

        What becomes of it depends on `keys[i]` and the one key `of_round` alone.
        """
        if len(keys) != len(offsets) - 1:
            raise UsageError("dropout_key_count_mismatch", keys=len(keys), sentences=len(offsets) - 1)
        new_ids = [np.zeros(0, np.int32)]
        new_lengths = [np.zeros(1, np.int64)]
        begin = 0
        while begin < len(keys):
            full = int(np.searchsorted(offsets, offsets[begin] + _PIECES_AT_ONCE, side="right")) - 1
            end = max(full, begin + 1)
            here = offsets[begin : end + 1]
            some_ids, some_lengths = self._cut(ids[here[0] : here[-1]], here - here[0], keys[begin:end], of_round)
            new_ids.append(some_ids)
            new_lengths.append(some_lengths)
            begin = end
        return np.concatenate(new_ids), np.cumsum(np.concatenate(new_lengths))

    def _cut(self, ids: Ids, offsets: Places, keys: Keys, of_round: Keys) -> tuple[Ids, Places]:
        """The new pieces of some sentences, and how many each of them has."""
        starts = self._word_starts(ids, offsets)
        sentence = np.searchsorted(offsets, starts, side="right") - 1
        drawn = keyed_random.keys(keys[sentence], "variant", (starts - offsets[sentence]).astype(np.uint64))
        words = WordForms.of(ids, starts, drawn % np.uint64(VARIANTS))
        cut, edges = self._merge_again(words, of_round)
        sizes = np.diff(edges)[words.form]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        places = np.arange(before[-1]) + np.repeat(edges[words.form] - before[:-1], sizes)
        return cut[places], np.diff(before[np.searchsorted(starts, offsets)])

    def _word_starts(self, ids: Ids, offsets: Places) -> Places:
        """The first piece of each word: characters within a piece are neighbours, those of two may be."""
        begins = np.ones(len(ids), np.bool_)
        begins[1:] = ~self._table.are_neighbours(
            self._table.last_character(ids[:-1]), self._table.first_character(ids[1:])
        )
        begins[offsets[:-1][offsets[:-1] < len(ids)]] = True
        return np.flatnonzero(begins)

    def _merge_again(self, words: WordForms, of_round: Keys) -> tuple[Ids, Places]:
        """The new pieces of each form, one after the other, and where those of each begin and the last end."""
        units, edges = self._table.apart(words.pieces, words.edges)
        sizes = np.diff(edges)
        place_in_word = np.arange(len(units)) - np.repeat(edges[:-1], sizes)
        joined = np.full(len(units), -1, np.int32)
        inner = np.flatnonzero(place_in_word[1:])  # all but the last character of a word
        joined[inner] = self._table.join(units[inner], units[inner + 1])
        kept = np.ones(len(units), np.bool_)
        draws = keyed_random.keys(
            np.repeat(keyed_random.keys(of_round, words.keys), sizes), place_in_word.astype(np.uint64)
        )
        going = _Words(np.arange(len(units)), units.copy(), joined, draws, sizes)
        step = 0
        while len(going.lengths):
            going = self._merge_one_each(going, step, units, kept)
            step += 1
        counted = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        return units[kept], counted[edges]

    def _merge_one_each(self, words: "_Words", step: int, units: Ids, kept: Flags) -> "_Words":
        """One step of every word, noted in `units` and `kept`; and the words that are not finished."""
        starts = np.cumsum(words.lengths) - words.lengths
        best = np.minimum.reduceat(self._priorities(words, step), starts)
        going = best != _REFUSED
        left = best[going] & _PLACE
        units[words.places[left]] = words.units[left] = words.joined[left]
        kept[words.places[left + 1]] = False
        stays = np.repeat(going, words.lengths)
        stays[left + 1] = False
        rest = words.those(stays, words.lengths[going] - 1)
        new_starts = np.cumsum(rest.lengths) - rest.lengths
        self._join_again(rest, new_starts + left - starts[going], new_starts)
        return rest

    def _priorities(self, words: "_Words", step: int) -> Places:
        possible = np.flatnonzero(words.joined >= 0)
        if self.rate:
            possible = possible[keyed_random.uniform(words.draws[possible] + np.uint64(step)) >= self.rate]
        priorities = np.full(len(words.joined), _REFUSED)
        priorities[possible] = self._table.rank[words.joined[possible]] << _RANK_SHIFT | possible
        return priorities

    def _join_again(self, words: "_Words", merged: Places, starts: Places) -> None:
        """A merged piece, one in each word, has other pairs with its neighbours."""
        at_end = merged == starts + words.lengths - 1
        words.joined[merged[at_end]] = -1
        changed = np.concatenate([merged[~at_end], merged[merged > starts] - 1])
        words.joined[changed] = self._table.join(words.units[changed], words.units[changed + 1])


@dataclass(frozen=True)
class _Words:
    """The pieces of unfinished words, one after the other."""

    places: Places  # where the piece begins in the text, in characters
    units: Ids  # the piece
    joined: Ids  # what it makes with the next one of its word, or -1
    draws: Keys  # from which it is refused
    lengths: Places  # pieces of each word

    def those(self, stays: Flags, lengths: Places) -> "_Words":
        return _Words(self.places[stays], self.units[stays], self.joined[stays], self.draws[stays], lengths)
