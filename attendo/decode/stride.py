"""Strides: greedy steps on a CPU with hardly anything around the network, as long as nothing happens but growing.

A step that ends no row, and in which no rule has a say, adds a token to each row and its log-probability. To begin an
operation takes torch longer than to carry it out on so few numbers, and a turn is dozens of them.
"""

from collections import deque
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from attendo.decode.frontier import Asked, Frontier
from attendo.decode.search import Rule, SearchState, Stepper, Strategy, judged, search, turn
from attendo.decode.strategies import Greedy
from attendo.decode.watching import between_steps
from attendo.text import EOS, PAD

_GROWING = ("ids", "length", "log_probability")


@runtime_checkable
class InPlace(Protocol):
    """Goes on from one state by NumPy. A stepper that has such a thing makes it by `in_place(state)`."""

    @property
    def state(self) -> Any:
        """Behind the steps that were taken."""

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """One more token of every row [R, 1]: log-probabilities [R, V] of the next, until another step is taken."""


def hypotheses(
    stepper: Stepper, state: SearchState, asked: Asked | Frontier, strategy: Strategy, rules: Sequence[Rule] = ()
) -> Frontier:
    """What a search finds, for whoever need not see it token by token."""
    return deque(search(stepper, state, asked, strategy, rules, stride), maxlen=1).pop().hypotheses


@torch.no_grad()
def stride(
    stepper: Stepper, state: Any, frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]
) -> tuple[Any, Frontier]:
    """As many turns as it takes until something happens; one, where any may be more than growing."""
    special, begin = _special(frontier, strategy, rules), getattr(stepper, "in_place", None)
    if special is None or begin is None:
        return turn(stepper, state, frontier, strategy, rules)
    steps: InPlace = begin(state)
    going = slice(None) if frontier.open.all() else frontier.open.numpy().nonzero()[0]
    rows = np.arange(frontier.length.size(0))[:, None]
    room = int((frontier.asked.limit - frontier.length)[frontier.open].min())
    grown: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    log_probs = steps.step(frontier.last.numpy())
    best = log_probs.argmax(-1, keepdims=True)
    while len(grown) < room and special.isdisjoint(best[going, 0].tolist()):
        grown.append((best, log_probs[rows, best]))
        between_steps()
        log_probs = steps.step(best)
        best = log_probs.argmax(-1, keepdims=True)
    frontier, told = _longer(frontier, grown), torch.from_numpy(log_probs)
    return steps.state, strategy.advance(frontier, *judged(told, frontier, strategy, rules, told))[1]


def _special(frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]) -> Set[int] | None:
    """The tokens that are more than growth, as they end a row or a rule may forbid them; None: any may be."""
    if type(strategy) is not Greedy or _is_inside_prefix(frontier):
        return None
    tokens = {EOS}
    for rule in rules:
        if (own := getattr(rule, "may_forbid", None)) is None:
            return None
        tokens.update(own)
    return tokens


def _is_inside_prefix(frontier: Frontier) -> bool:
    prefix = frontier.asked.prefix
    return prefix.size(1) > 0 and bool(((prefix != PAD).sum(dim=1) > frontier.length).any())


def _longer(frontier: Frontier, grown: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]) -> Frontier:
    """With more tokens [R, 1] in the open rows, and what these add to the log-probability."""
    frontier = replace(frontier, **{name: getattr(frontier, name).clone() for name in _GROWING})
    ids, length, log_probability = (getattr(frontier, name).numpy() for name in _GROWING)
    rows = frontier.open.numpy().nonzero()[0]
    for tokens, added in grown:
        length[rows] += 1
        ids[rows, length[rows]] = tokens[rows, 0]
        log_probability[rows] += added[rows, 0]
    return frontier
