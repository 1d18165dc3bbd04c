"""The different words of a text, each in a few variants, and which of them stands where."""

from dataclasses import dataclass
from itertools import count

import numpy as np

from attendo import keyed
from attendo.keyed import Keys
from attendo.text.merge_table import Ids, Places

_PLACE_SHIFT = np.uint64(32)  # a piece and its place in the word are one number


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
        keys = numbers = keyed.keys(_sums(keyed.keys(0, placed), starts), variants)
        for salt in count(1):
            _, first, form = np.unique(numbers, return_index=True, return_inverse=True)
            # Two words with one number are next to impossible; still no word may become another one.
            if np.array_equal(sizes[first][form], sizes):
                alike = np.repeat(starts[first][form], sizes) + place_in_word
                if np.array_equal(ids[alike], ids):
                    break
            numbers = keyed.keys(_sums(keyed.keys(salt, placed), starts), variants)
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[first])])
        places = np.arange(edges[-1]) + np.repeat(starts[first] - edges[:-1], sizes[first])
        return cls(form, ids[places], edges, keys[first])


def _sums(numbers: Keys, starts: Places) -> Keys:
    """Of each run that begins at one of `starts`."""
    return np.add.reduceat(numbers, starts) if len(starts) else np.zeros(0, np.uint64)
