"""A fixed list of pieces and their ids, for tokenizers that cut text by rule."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from attendo.errors import DataError, UsageError
from attendo.text.tokenizer import CONTROL_PIECES, UNK, is_unicode


@dataclass(frozen=True)
class Vocabulary:
    """The control pieces stand first and are not looked up, so no text can name them."""

    entries: tuple[str, ...]  # the pieces after the control pieces
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = {piece: position for position, piece in enumerate(self.entries, start=len(CONTROL_PIECES))}
        object.__setattr__(self, "_ids", ids)

    @property
    def size(self) -> int:
        """The number of ids, control pieces included."""
        return len(CONTROL_PIECES) + len(self.entries)

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """The id of each piece, UNK for those that are not in the list."""
        return [self._ids.get(piece, UNK) for piece in pieces]

    def missing(self, pieces: Iterable[str]) -> list[str]:
        """The pieces that are not in the list, in order."""
        return [piece for piece in pieces if piece not in self._ids]

    def entry(self, piece_id: int) -> str:
        """The piece of an id that is no control id."""
        return self.entries[piece_id - len(CONTROL_PIECES)]


def most_frequent(pieces: Iterable[str], limit: int | None, always: tuple[str, ...] = ()) -> Vocabulary:
    """At most `limit` ids, control pieces included: first `always`, then by count, ties by text."""
    smallest = len(CONTROL_PIECES) + len(always) + 1
    if limit is not None and limit < smallest:
        raise UsageError("vocabulary_too_small", size=limit, minimum=smallest)
    counts = Counter(pieces)
    if not counts:
        raise DataError("vocabulary_text_empty")
    for piece in counts:
        if not is_unicode(piece):
            raise DataError("piece_unpaired_surrogate", piece=piece)
    ranked = sorted(counts.keys() - set(always), key=lambda piece: (-counts[piece], piece))
    room = None if limit is None else limit - len(CONTROL_PIECES) - len(always)
    return Vocabulary((*always, *ranked[:room]))
