"""Noise in the decoder's input: some tokens of the target are replaced, the labels stay.

In training the decoder reads the reference, in use its own output, which has errors (exposure bias). With noise it
learns to continue after a wrong token. Each token of the target is replaced with probability `rate`:

    half of them    by a draw from the unigram distribution of the targets
    half of them    by a copy of the token before or after it

The unigram distribution is that of the shuffle buffer, 65,536 pairs: the draw is the token at a uniform position of its
targets. A corpus that fits into one buffer has exactly this distribution. So the vocabulary needs no counts.

Every draw is a hash of seed, epoch and pair, as in BPE-dropout. It does not depend on threads, processes or a resume.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attendo import keyed_random
from attendo.data.batch import RaggedArray
from attendo.keyed_random import Keys
from attendo.text import EOS


@dataclass(frozen=True, eq=False)
class InputNoise:
    """Replaces tokens of the targets of a shuffle buffer. BOS and padding are added later and stay."""

    rate: float
    keys: Keys  # one per pair of the buffer
    unigrams: NDArray[np.int32]  # all target tokens of the buffer

    def apply(self, target: RaggedArray, rows: NDArray[np.int64]) -> RaggedArray:
        """Return the decoder's input of the targets that are these rows of the buffer."""
        lengths = target.lengths
        position = np.arange(len(target.ids)) - np.repeat(target.offsets[:-1], lengths)
        keys = keyed_random.make_keys(np.repeat(self.keys[rows], lengths), position.astype(np.uint64))
        replaced = _draw(keys, "replace") < self.rate
        copied, nearby = self._copy_neighbours(target, position, _draw(keys, "side") < 0.5)
        copied &= _draw(keys, "copy") < 0.5
        drawn = self.unigrams[(_draw(keys, "token") * len(self.unigrams)).astype(np.int64)]
        noise = np.where(copied, nearby, drawn)
        # EOS ends a document of running text. It neither disappears nor appears.
        replaced &= (target.ids != EOS) & (noise != EOS)
        return RaggedArray(np.where(replaced, noise, target.ids), target.offsets)

    def _copy_neighbours(
        self, target: RaggedArray, position: NDArray[np.int64], before: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Return which tokens have a neighbour, and the neighbour: the token `before`, or the one after.

        The first token of a target has only the one after it, the last token only the one before it.
        """
        last = np.repeat(target.lengths, target.lengths) - 1
        before = (before & (position > 0)) | (position == last)
        index = np.arange(len(target.ids)) + np.where(before, -1, 1)
        exists = last > 0
        return exists, target.ids[np.where(exists, index, 0)]


def _draw(keys: Keys, purpose: str) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key."""
    return keyed_random.uniform(keyed_random.make_keys(keys, purpose))
