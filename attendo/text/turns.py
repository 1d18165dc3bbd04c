"""The turns of a conversation as one text."""

from collections.abc import Iterable

TURN = "<turn>"  # between two turns; a symbol of the tokenizers that learned from conversations

_SPOKEN = "[turn]"  # without a space, which `without_spaces` would leave out


def join_turns(turns: Iterable[str]) -> str:
    return TURN.join(turns)


def as_turn(text: str) -> str:
    """Nobody can say more than one turn: the symbol between turns is not it where somebody says it."""
    return text.replace(TURN, _SPOKEN)
