"""Pairs of words that go together, drawn evenly."""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from random import Random
from typing import Generic, Protocol, TypeVar

from attendo.recipes.builtin.words import Noun, Nouns


class TakesNouns(Protocol):
    """A verb, an adjective or a spot: whatever states the nouns it goes with."""

    @property
    def nouns(self) -> Nouns: ...


Word = TypeVar("Word", bound=TakesNouns)


class Matches(Generic[Word]):
    """Draws a word with a noun it takes; neither a picky word nor a noun that few words take becomes rare."""

    def __init__(self, words: Iterable[Word]) -> None:
        self._pairs: list[tuple[Word, Noun]] = [(word, noun) for word in words for noun in word.nouns]
        per_word = Counter(id(word) for word, _ in self._pairs)
        per_noun = Counter(noun.name for _, noun in self._pairs)
        shares = (
            len(per_noun) / per_word[id(word)] + len(per_word) / per_noun[noun.name] for word, noun in self._pairs
        )
        self._cumulative = list(accumulate(shares))

    def draw(self, dice: Random) -> tuple[Word, Noun]:
        return dice.choices(self._pairs, cum_weights=self._cumulative)[0]
