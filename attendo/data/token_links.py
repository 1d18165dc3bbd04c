"""Links of tokens from the links of words.

Prepared data have the links of words. Those of tokens are made with each batch, because BPE-dropout changes the tokens.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

from attendo.data.batch import RaggedArray
from attendo.data.pharaoh import Link
from attendo.text import EOS, UNK, Tokenizer


def flatten_links(pairs: Iterable[Iterable[Link]]) -> RaggedArray:
    """Return the links of each pair as one sequence: source and target word in turn."""
    return RaggedArray.from_lists([[word for link in sorted(links) for word in link] for links in pairs])


def unflatten_links(numbers: Sequence[int]) -> list[Link]:
    """Return the links of one pair from such a sequence."""
    return list(zip(numbers[::2], numbers[1::2], strict=True))


@dataclass(frozen=True, eq=False)
class TokenWords:
    """What each token of a vocabulary adds to the words of a text. Words are separated by white space."""

    after_space: NDArray[np.int64]  # words that begin in the token, after white space or at the start of the text
    after_letter: NDArray[np.int64]  # the same after any other character
    ends_word: NDArray[np.bool_]  # its last character is white space
    is_mark: NDArray[np.bool_]  # it has punctuation and no letter

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TokenWords":
        texts = _token_texts(tokenizer)
        begins = [sum(one.isspace() and not other.isspace() for one, other in pairwise(text)) for text in texts]
        first = np.array([bool(text) and not text[0].isspace() for text in texts])
        marks = [_is_mark(text) and number != UNK for number, text in enumerate(texts)]
        ends = [text[-1:].isspace() for text in texts]
        return cls(np.array(begins) + first, np.array(begins), np.array(ends), np.array(marks))

    def word_of_each_token(self, sequences: RaggedArray) -> NDArray[np.int64]:
        """Return the word of each token's last letter. White space belongs to the word before it, or to the first."""
        begins = self._count_begins(sequences)
        total = np.cumsum(begins)
        starts = sequences.offsets[:-1]
        before = np.concatenate([[0], total])[starts]
        return np.maximum(total - np.repeat(before, sequences.lengths) - 1, 0)

    def count_words(self, sequences: RaggedArray) -> NDArray[np.int64]:
        """Return the number of words of each sequence."""
        total = np.concatenate([[0], np.cumsum(self._count_begins(sequences))])
        return total[sequences.offsets[1:]] - total[sequences.offsets[:-1]]

    def _count_begins(self, sequences: RaggedArray) -> NDArray[np.int64]:
        ids = sequences.ids
        spaced = np.concatenate([[True], self.ends_word[ids]])[:-1]
        spaced[sequences.offsets[:-1][sequences.lengths > 0]] = True
        return np.where(spaced, self.after_space[ids], self.after_letter[ids])


@dataclass(frozen=True, eq=False)
class TokenLinker:
    """Makes the links of tokens from the links of words. `source` and `target` are tables of the vocabularies."""

    source: TokenWords
    target: TokenWords

    @classmethod
    def of(cls, source: Tokenizer, target: Tokenizer) -> "TokenLinker":
        words = TokenWords.of(source)
        return cls(words, words if target is source else TokenWords.of(target))

    def link(self, source: RaggedArray, target: RaggedArray, links: RaggedArray) -> Bool[Tensor, "B T S"]:
        """Return whether each target token is linked with each source token. The last column may be EOS.

        A word in several tokens: letters are linked with letters and punctuation with punctuation, if there is any. A
        token without a link, and EOS, are linked with EOS of the source. A pair without links has none at all.
        """
        sources, source_marks = _pad_words(source, self.source)
        targets, target_marks = _pad_words(target, self.target)
        linked = np.zeros((len(links), targets.max(initial=0) + 2, sources.max(initial=0) + 2), np.bool_)
        rows, pairs = np.repeat(np.arange(len(links)), links.lengths // 2), links.ids.reshape(-1, 2)
        known = (pairs[:, 0] < linked.shape[2] - 1) & (pairs[:, 1] < linked.shape[1] - 1)  # a source may be cut
        linked[rows[known], pairs[known, 1], pairs[known, 0]] = True  # the last row and column stay False: no word
        found = linked[np.arange(len(links))[:, None, None], targets[:, :, None], sources[:, None, :]]
        alike = found & (target_marks[:, :, None] == source_marks[:, None, :])
        found = np.where(alike.any(-1, keepdims=True), alike, found)
        is_label = np.arange(found.shape[1]) <= target.lengths[:, None]  # a token or EOS
        unlinked = is_label & ~found.any(-1) & (links.lengths > 0)[:, None]
        found[np.arange(len(links)), :, source.lengths] = unlinked
        return torch.from_numpy(found)


def _pad_words(sequences: RaggedArray, words: TokenWords) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the word of each token, -1 for none, and whether the token is punctuation. There is a column for EOS."""
    inside = np.arange(sequences.lengths.max(initial=0) + 1) < sequences.lengths[:, None]
    numbers, marks = np.full(inside.shape, -1, np.int64), np.zeros(inside.shape, np.bool_)
    numbers[inside] = words.word_of_each_token(sequences)
    marks[inside] = words.is_mark[sequences.ids]
    return numbers, marks


def _token_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the text that each token adds after a letter. Control tokens other than UNK add nothing."""
    first = EOS + 1 + len(tokenizer.symbols)
    anchors = ([number] for number in range(first, tokenizer.vocab_size))
    anchor = next((ids for ids in anchors if _is_letter(tokenizer.decode(ids)[-1:])), [])
    before = len(tokenizer.decode(anchor))
    return [tokenizer.decode([*anchor, number])[before:] for number in range(tokenizer.vocab_size)]


def _is_letter(text: str) -> bool:
    return text.isalnum() and text.isprintable()


def _is_mark(text: str) -> bool:
    """Whether a token has only punctuation and spaces. A part of a character in UTF-8 decodes to U+FFFD."""
    plain = text.replace(" ", "")
    return bool(plain) and all(unicodedata.category(each)[0] == "P" for each in plain)
