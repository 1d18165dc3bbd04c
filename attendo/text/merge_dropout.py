"""BPE-dropout (Provilkov, Emelianenko and Voita 2020): a text cut into other pieces, the same ones for the same key."""

from dataclasses import dataclass

import numpy as np

from attendo import keyed
from attendo.errors import UsageError
from attendo.keyed import Keys
from attendo.text.merge_table import Flags, Ids, MergeTable, Places
from attendo.text.sentencepiece_file import model_kind, pieces
from attendo.text.subwords import SentencePiece
from attendo.text.word_forms import WordForms

# Enough that words come again, few enough that the arrays stay small.
_PIECES_AT_ONCE = 1 << 18
VARIANTS = 32

_REFUSED = np.iinfo(np.int64).max
_RANK_SHIFT = 32  # a priority is the rank of the merge and then its place: the smallest is best, and leftmost
_PLACE = (1 << _RANK_SHIFT) - 1


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
        drawn = keyed.keys(keys[sentence], "variant", (starts - offsets[sentence]).astype(np.uint64))
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
        draws = keyed.keys(np.repeat(keyed.keys(of_round, words.keys), sizes), place_in_word.astype(np.uint64))
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
            possible = possible[keyed.uniform(words.draws[possible] + np.uint64(step)) >= self.rate]
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
