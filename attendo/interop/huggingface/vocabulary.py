"""Vocabulary permutation between attendo and another system, and unique names for all token ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attendo.errors import ModelError, shorten
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD, UNK, Characters, SentencePiece, Tokenizer, Words
from attendo.text.byte_level_bpe import ByteLevelBPE
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text.sentencepiece import iter_pieces
from attendo.text.tokenizer import MARK

SUPPRESS_BIAS = -1e4  # on the logit of a token that the other system does not have; a half-precision number can hold it


@dataclass(frozen=True)
class VocabularyPermutation:
    """Which of their rows each of our ids is.

    Where one of their tokens does the work of two of ours, as Marian's pad is also what an answer begins from, the
    second is a copy that can never be said: the probabilities of all others stay what they were.
    """

    rows: tuple[int, ...]
    copies: frozenset[int] = frozenset()  # those of our ids that they have no row of their own for

    @cached_property
    def _id_by_row(self) -> dict[int, int]:
        return {row: number for number, row in enumerate(self.rows) if number not in self.copies}

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def their_size(self) -> int:
        """Of their tokens."""
        return len(self.rows) - len(self.copies)

    def to_ours(self, ids: Iterable[int]) -> list[int]:
        return [self._id_by_row[each] for each in ids]

    def to_theirs(self, ids: Iterable[int]) -> list[int]:
        return [self.rows[each] for each in ids]

    def table_to_ours(self, table: Tensor) -> Tensor:
        """Rows of an embedding or an output layer."""
        return table.index_select(0, torch.tensor(self.rows))

    def table_to_theirs(self, table: Tensor) -> Tensor:
        """Rows of ours as they have them: the way back."""
        return table[[number for _, number in sorted(self._id_by_row.items())]]

    def bias_to_ours(self, bias: Tensor) -> Tensor:
        """Of the output layer."""
        moved = bias.index_select(0, torch.tensor(self.rows)).clone()
        moved[sorted(self.copies)] = SUPPRESS_BIAS
        return moved

    def names_to_ours(self, names: Sequence[str]) -> list[str]:
        """Of their tokens, by our ids."""
        return [names[row] for row in self.rows]


def identity_permutation(size: int) -> VocabularyPermutation:
    """Theirs is ours."""
    return VocabularyPermutation(tuple(range(size)))


def build_permutation(
    size: int, pad: int, unk: int | None, start: int, eos: int, first: Sequence[int] = (), moves_start: bool = False
) -> VocabularyPermutation:
    """The order for a vocabulary of `size` tokens. Those in `first` come right behind eos.

    `start` is what the decoder begins from. It stays a token that can be said, and our bos is a copy, unless it
    `moves_start`: where nothing ever says it. Without an unk of theirs ours is a copy too.
    """
    named = {"pad": pad, "unk": unk, "the start of an answer": start, "eos": eos}
    if outside := [
        f"{name} has the id {shorten(each)}" for name, each in named.items() if each is not None and each >= size
    ]:
        raise ModelError("control_token_outside_vocabulary", tokens=", ".join(outside), size=size)
    kept: dict[int, int] = {}
    copies = {BOS} if not moves_start else set()
    for number, row in ((EOS, eos), (PAD, pad), (UNK, unk), (BOS, start)):
        if row is None or row in kept.values():
            copies.add(number)
        elif number not in copies:
            kept[number] = row
    controls = {PAD: pad, UNK: pad if unk is None else unk, BOS: start, EOS: eos}
    taken = set(kept.values())
    front = [row for row in first if row not in taken]
    rest = sorted(set(range(size)) - taken - set(front))
    return VocabularyPermutation((*(controls[number] for number in sorted(controls)), *front, *rest), frozenset(copies))


def vocabulary_names(tokenizer: Tokenizer) -> list[str]:
    """As SentencePiece writes them, with `▁` for the space before a piece. Where two would be alike, the later one has
    its number for a name.
    """
    first = len(CONTROL_PIECES)
    names: dict[str, None] = dict.fromkeys(CONTROL_PIECES)
    for number, piece in enumerate(_piece_texts(tokenizer), start=first):
        names[piece if piece and piece not in names else number_name(number, names)] = None
    return list(names)


def sentencepiece_bytes(tokenizer: Tokenizer) -> bytes | None:
    """What the SentencePiece library loads and cuts texts with, where that is how they are cut."""
    return tokenizer.model if isinstance(tokenizer, SentencePiece | ImportedSentencePiece) else None


def name_to_id(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _piece_texts(tokenizer: Tokenizer) -> Iterable[str]:
    """Those behind the control pieces."""
    first = len(CONTROL_PIECES)
    match tokenizer:
        case SentencePiece():
            return [piece.text for piece in iter_pieces(tokenizer.model)][first:]
        case ImportedSentencePiece() | ByteLevelBPE():
            return tokenizer.entries
        case Words() | Characters():
            return [entry.replace(" ", MARK) for entry in tokenizer.vocabulary.entries]
        case _:
            return tokenizer.pieces(range(first, tokenizer.vocab_size))


def number_name(number: int, taken: Iterable[str]) -> str:
    """For a token that has no other name. With its space no tokenizer ever cuts it out of a text."""
    name = f"<row {number}>"
    while name in taken:
        name = f"<{name}>"
    return name
