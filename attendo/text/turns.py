"""The turns of a conversation as one text."""

from collections.abc import Iterable

TURN = "<turn>"  # between two turns; a symbol of the tokenizers that learned from conversations


def join_turns(turns: Iterable[str]) -> str:
    return TURN.join(turns)
