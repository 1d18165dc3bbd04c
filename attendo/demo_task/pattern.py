"""A sentence pattern: one template per language, and a function that draws the parts."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from attendo.demo_task.phrase import Phrase, weave

Parts = dict[str, Phrase]


@dataclass(frozen=True)
class Pattern:
    """Makes sentences of one pattern. `joins` names the parts whose combination can be held out."""

    name: str
    english: str
    chinese: str
    joins: str
    draw: Callable[[Random], Parts]

    def __call__(self, dice: Random) -> Phrase:
        return weave(self.english, self.chinese, joins=self.joins, head="", **self.draw(dice))


def pattern(name: str, english: str, chinese: str, joins: str) -> Callable[[Callable[[Random], Parts]], Pattern]:
    """Make a pattern of the function that draws its parts. The docstring of that function is an example."""
    return lambda draw: Pattern(name, english, chinese, joins, draw)
