"""Byte-level BPE of GPT-2 and BART, and the base class of tokenizers of imported models."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from attendo.errors import ModelError, shorten
from attendo.model_files import read_text
from attendo.text.tokenizer import (
    EOS,
    UNK,
    UNKNOWN_TEXT,
    display_piece,
    header_path,
    parse_flag,
    parse_pieces,
    parse_symbols,
    replace_newlines,
    require_unicode,
    split_between_symbols,
    strip_special_ids,
    write_header,
)
from attendo.text.vocabulary import VocabularyTokenizer

Merge = tuple[str, str]
_CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")
# Over character classes: a word, a number or punctuation with the space before it, or a run of spaces without its
# last one, which belongs to the next word.
_WORD = re.compile(r" ?L+| ?N+| ?P+|[ S]+(?=[ S])|[ S]+")


class ImportedVocabulary(VocabularyTokenizer):
    """Base class of tokenizers of imported models. Symbols are tokens that have an id but no text."""

    def _text_ids(self, ids: Sequence[int]) -> list[int]:
        """Return the ids that have a text, including UNK."""
        return [each for each in strip_special_ids(ids, self.vocab_size) if not EOS < each <= EOS + len(self.symbols)]


def read_entries(folder: Path, name: str, header: dict[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return entries and symbols of `NAME.tokenizer.json`. A fault raises a `ModelError`."""
    path = header_path(folder, name)
    return parse_pieces(path, header, from_disk=str, is_piece=bool), parse_symbols(path, header)


@dataclass(frozen=True)
class ByteLevelBPE(ImportedVocabulary):
    """Byte-level BPE tokenizer. Any text without line breaks is restored exactly.

    With `adds_space` a text without a space at its beginning gets one, which decoding removes.
    """

    kind: ClassVar[str] = "byte_pairs"
    merges: tuple[Merge, ...] = field(repr=False)  # best first
    entries: tuple[str, ...] = field(repr=False)
    symbols: tuple[str, ...] = ()
    adds_space: bool = False
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)
    _ranks: dict[Merge, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_ranks", {pair: rank for rank, pair in enumerate(self.merges)})

    @classmethod
    def read(cls, folder: Path, name: str, header: dict[str, object]) -> "ByteLevelBPE":
        """Read `NAME.tokenizer.json` and `NAME.merges.txt`. A fault raises a `ModelError`."""
        merges, entries = read_merges(_merges_path(folder, name)), read_entries(folder, name, header)
        return cls(merges, *entries, parse_flag(header_path(folder, name), header, "adds_space"))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, on one line. Invalid UTF-8 becomes U+FFFD."""
        text = b"".join(self._to_bytes(each) for each in self._text_ids(ids)).decode("utf-8", errors="replace")
        return replace_newlines(text.removeprefix(" ") if self.adds_space else text)

    def unknown(self, text: str) -> list[str]:
        """Return the pieces that are not in the vocabulary."""
        missing = map(_piece_to_bytes, super().unknown(text))
        return [display_piece(piece.decode("utf-8", errors="replace")) for piece in missing]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json` and `NAME.merges.txt`."""
        flags = {"adds_space": True} if self.adds_space else {}
        header = write_header(folder, name, self.kind, self.entries, self.symbols, flags)
        path = _merges_path(folder, name)
        lines = ["#version: 0.2", *(" ".join(pair) for pair in self.merges)]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
        return [header, path]

    def _split(self, text: str) -> list[str]:
        require_unicode(text)
        return split_between_symbols(replace_newlines(text), self.symbols, self._split_text)

    def _split_text(self, text: str) -> Iterator[str]:
        # As in transformers, each part between symbols gets a space.
        spaced = f" {text}" if self.adds_space and text and not text.startswith(" ") else text
        for word in _split_words(spaced):
            yield from self._merge([_BYTE_TO_CHARACTER[byte] for byte in word.encode("utf-8")])

    def _merge(self, pieces: list[str]) -> list[str]:
        """Apply the best possible merge at every position, and repeat until none is possible."""
        while len(pieces) > 1:
            pairs = list(pairwise(pieces))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            joined: list[str] = []
            for piece in pieces:
                # A piece that was just merged is longer than the left half, so it is not merged again.
                if joined and (joined[-1], piece) == best:
                    joined[-1] += piece
                else:
                    joined.append(piece)
            pieces = joined
        return pieces

    def _to_bytes(self, piece_id: int) -> bytes:
        return UNKNOWN_TEXT.encode() if piece_id == UNK else _piece_to_bytes(self._entry(piece_id))

    def _piece_text(self, piece_id: int) -> str:
        """Return the text of a piece, a partial character as U+FFFD."""
        return self._to_bytes(piece_id).decode("utf-8", errors="replace")


def read_merges(path: Path) -> tuple[Merge, ...]:
    """Read one merge per line, best first. A `#version` line is skipped."""
    lines = read_text(path).splitlines()
    pairs = [tuple(line.split(" ")) for line in lines if line.strip() and not line.startswith("#version")]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise ModelError("merge_not_a_pair", path=path, line=shorten(" ".join(pair)))
    return tuple((pair[0], pair[1]) for pair in pairs)


def _split_words(text: str) -> Iterator[str]:
    kinds, position = "".join(map(_character_class, text)), 0
    while position < len(text):
        found = _CONTRACTION.match(text, position) or _WORD.match(kinds, position)
        assert found is not None  # every character has a class
        yield text[position : found.end()]
        position = found.end()


@lru_cache(maxsize=1 << 16)
def _character_class(character: str) -> str:
    """Return L (letter), N (number), a plain space, S (other white space) or P (anything else)."""
    if character == " ":
        return " "
    kind = unicodedata.category(character)[0]
    if kind in "LN":
        return kind
    return "S" if character.isspace() and character not in "\x1c\x1d\x1e\x1f" else "P"


def _bytes_to_unicode() -> list[str]:
    """Return a visible character for each byte, as GPT-2 does: itself if visible, else one from U+0100 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]


_BYTE_TO_CHARACTER = _bytes_to_unicode()
_CHARACTER_TO_BYTE = {letter: byte for byte, letter in enumerate(_BYTE_TO_CHARACTER)}


def _piece_to_bytes(piece: str) -> bytes:
    """Return the bytes of a piece. A word added to the vocabulary later is encoded as UTF-8."""
    return (
        bytes(_CHARACTER_TO_BYTE[letter] for letter in piece)
        if all(each in _CHARACTER_TO_BYTE for each in piece)
        else piece.encode()
    )


def _merges_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.merges.txt"
