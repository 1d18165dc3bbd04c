"""Texts that end where one of some sequences would begin."""

from collections.abc import Sequence


class Stops:
    """Takes a text bit by bit. What may be the beginning of a sequence is held back until it is known whether it is."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences, self._held = sequences, ""
        self.reached = False

    def new(self, text: str) -> str:
        """What can be told with this text behind all before it; once a sequence was reached, nothing."""
        if self.reached:
            return ""
        self._held += text
        found = [at for at in map(self._held.find, self._sequences) if at >= 0]
        self.reached = bool(found)
        end = min(found) if found else len(self._held) - self._doubtful()
        told, self._held = self._held[:end], self._held[end:]
        return told

    def rest(self) -> str:
        """What was held back, where the text ends with it after all."""
        rest, self._held = "" if self.reached else self._held, ""
        return rest

    def _doubtful(self) -> int:
        """How many of the last characters a sequence may begin with."""
        lengths = range(max(map(len, self._sequences), default=1) - 1, 0, -1)
        return next((n for n in lengths if self._begins(self._held[-n:], n)), 0)

    def _begins(self, tail: str, length: int) -> bool:
        return len(tail) == length and any(
            length < len(sequence) and sequence.startswith(tail) for sequence in self._sequences
        )
