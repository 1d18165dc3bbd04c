"""What somebody says in a conversation, as one turn of it."""

from attendo.text.turns import TURN

_SPOKEN = "[turn]"  # without a space, which `without_spaces` would leave out


def as_turn(text: str) -> str:
    """Nobody can say more than one turn: the symbol between turns is not it where somebody says it."""
    return text.replace(TURN, _SPOKEN)
