"""Vocabulary permutations between attendo and another system, and unique names of token ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attendo.errors import ErrorList, MessagePart, ModelError, shorten
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD, UNK, Characters, SentencePiece, Tokenizer, Words
from attendo.text.byte_level_bpe import ByteLevelBPE
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text.sentencepiece import iter_pieces
from attendo.text.tokenizer import MARK

SUPPRESS_BIAS = -1e4  # for tokens that the other system does not have; fits in float16


@dataclass(frozen=True)
class VocabularyPermutation:
    """Maps each of attendo's ids to a row of the other system.

    One of their tokens may correspond to two of attendo's: Marian's pad is also the decoder start token. The second id
    is then a copy that is never generated, so all other probabilities are unchanged.
    """

    rows: tuple[int, ...]
    copies: frozenset[int] = frozenset()  # attendo's ids without a row of their own

    @cached_property
    def _id_by_row(self) -> dict[int, int]:
        return {row: number for number, row in enumerate(self.rows) if number not in self.copies}

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def their_size(self) -> int:
        """Number of their tokens."""
        return len(self.rows) - len(self.copies)

    def to_ours(self, ids: Iterable[int]) -> list[int]:
        return [self._id_by_row[each] for each in ids]

    def to_theirs(self, ids: Iterable[int]) -> list[int]:
        return [self.rows[each] for each in ids]

    def table_to_ours(self, table: Tensor) -> Tensor:
        """Reorder the rows of an embedding or output layer to attendo's ids."""
        return table.index_select(0, torch.tensor(self.rows))

    def table_to_theirs(self, table: Tensor) -> Tensor:
        """Reorder attendo's rows to their ids."""
        return table[[number for _, number in sorted(self._id_by_row.items())]]

    def bias_to_ours(self, bias: Tensor) -> Tensor:
        """Reorder the bias of the output layer to attendo's ids. Copies are suppressed."""
        permuted = bias.index_select(0, torch.tensor(self.rows)).clone()
        permuted[sorted(self.copies)] = SUPPRESS_BIAS
        return permuted


def identity_permutation(size: int) -> VocabularyPermutation:
    """Return the permutation for equal ids."""
    return VocabularyPermutation(tuple(range(size)))


def build_permutation(
    size: int, pad: int, unk: int | None, start: int, eos: int, first: Sequence[int] = (), moves_start: bool = False
) -> VocabularyPermutation:
    """Return the permutation for a vocabulary of `size` tokens. Tokens in `first` directly follow eos.

    `start` is the decoder start token. By default it can still be generated, and attendo's bos is a copy of it. With
    `moves_start` it becomes bos itself, for models that never generate it. If `unk` is None, attendo's unk is a copy.
    """
    controls_by_name = {"pad": pad, "unk": unk, "decoder_start": start, "eos": eos}
    if outside := [
        MessagePart("control_token_id", name=name, token_id=shorten(each))
        for name, each in controls_by_name.items()
        if each is not None and each >= size
    ]:
        raise ModelError("control_token_outside_vocabulary", tokens=ErrorList(outside), size=size)
    rows: dict[int, int] = {}
    copies = {BOS} if not moves_start else set()
    for number, row in ((EOS, eos), (PAD, pad), (UNK, unk), (BOS, start)):
        if row is None or row in rows.values():
            copies.add(number)
        elif number not in copies:
            rows[number] = row
    controls = {PAD: pad, UNK: pad if unk is None else unk, BOS: start, EOS: eos}
    used_rows = set(rows.values())
    front = [row for row in first if row not in used_rows]
    rest = sorted(set(range(size)) - used_rows - set(front))
    return VocabularyPermutation((*(controls[number] for number in sorted(controls)), *front, *rest), frozenset(copies))


def vocabulary_names(tokenizer: Tokenizer) -> list[str]:
    """Return unique names as SentencePiece writes them, with `▁` for a leading space.

    Of two equal names, the later one is replaced by its number.
    """
    first = len(CONTROL_PIECES)
    names: dict[str, None] = dict.fromkeys(CONTROL_PIECES)
    for number, piece in enumerate(_piece_texts(tokenizer), start=first):
        names[piece if piece and piece not in names else number_name(number, names)] = None
    return list(names)


def sentencepiece_bytes(tokenizer: Tokenizer) -> bytes | None:
    """Return the SentencePiece model file of a tokenizer; None for other tokenizers."""
    return tokenizer.model if isinstance(tokenizer, SentencePiece | ImportedSentencePiece) else None


def name_to_id(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _piece_texts(tokenizer: Tokenizer) -> Iterable[str]:
    """Return the pieces after the control pieces."""
    first = len(CONTROL_PIECES)
    match tokenizer:
        case SentencePiece():
            return [piece.text for piece in iter_pieces(tokenizer.model)][first:]
        case ImportedSentencePiece() | ByteLevelBPE():
            return tokenizer.entries
        case Words() | Characters():
            return [entry.replace(" ", MARK) for entry in tokenizer.entries]
        case _:
            return tokenizer.pieces(range(first, tokenizer.vocab_size))


def number_name(number: int, taken: Iterable[str]) -> str:
    """Return a name for an unnamed token. Because of its space no tokenizer produces it from text."""
    name = f"<row {number}>"
    while name in taken:
        name = f"<{name}>"
    return name
