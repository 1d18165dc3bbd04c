"""Phrases that must be said: how much of them a sequence of tokens holds, and what it still takes.

A phrase is held where its tokens stand side by side, and the token behind them does not go on with its last word.
Different phrases may share tokens, "a b c" holds both "a b" and "b c"; the same phrase asked for n times must stand
there n times, no token counted twice.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

# Of each different phrase: how many of its tokens the sequence ends in, and how many times it is still to come. One
# that has all of them is held unless the next token goes on with its last word.
State = tuple[tuple[int, int], ...]
GoesOn = Callable[[tuple[int, ...], int], bool]  # whether a token behind a phrase makes its last word longer

_MOST_STATES = 1_500  # looked at to find the shortest way through phrases that overlap
_OTHER = -1  # stands for every token that is in no phrase


def never(phrase: tuple[int, ...], token: int) -> bool:
    """Where every token is a word."""
    return False


class Phrases:
    """Reads sequences token by token."""

    def __init__(self, phrases: Sequence[Sequence[int]], goes_on: GoesOn = never) -> None:
        self._goes_on = lru_cache(maxsize=None)(goes_on)
        self._given = [tuple(phrase) for phrase in phrases]
        times = Counter(self._given)
        self._phrases = list(times)
        self._borders = [_borders(phrase) for phrase in self._phrases]
        self._tokens = {token for phrase in self._phrases for token in phrase}
        self._after: dict[tuple[State, int, tuple[bool, ...]], State] = {}
        self._wanted: dict[State, tuple[int, ...]] = {}
        self.start: State = tuple((0, count) for count in times.values())
        self._shortest = self._shortest_ways() if _overlap(self._phrases) else {}

    def read(self, ids: Iterable[int], state: State | None = None) -> State:
        """What these tokens lead to."""
        state = self.start if state is None else state
        for each in ids:
            longer = self._longer(state, each)
            token = each if each in self._tokens else _OTHER
            if (state, token, longer) not in self._after:
                self._after[state, token, longer] = self._read_one(state, token, longer)
            state = self._after[state, token, longer]
        return state

    def needed(self, state: State) -> int:
        """How many more tokens it takes to say all phrases: the fewest, or more where many overlap in many ways."""
        if state in self._shortest:
            return self._shortest[state]
        left = [(phrase, self._left(phrase, each), each[0]) for phrase, each in zip(self._phrases, state, strict=True)]
        begun = (begun for phrase, times, begun in left if times and begun < len(phrase))
        return sum(times * len(phrase) for phrase, times, _ in left) - max(begun, default=0)

    def wanted(self, state: State) -> tuple[int, ...]:
        """The tokens after which fewer are needed; there are some until nothing is needed."""
        if state not in self._wanted:
            now = self.needed(state)
            nearer = [token for token in sorted(self._tokens) if self.needed(self.read([token], state)) < now]
            self._wanted[state] = tuple(nearer)
        return self._wanted[state]

    def held(self, state: State) -> tuple[bool, ...]:
        """Of each phrase, in the order given, whether it was said; of equal ones the first come first."""
        left = {
            phrase: asked - self._left(phrase, each)
            for phrase, (_, asked), each in zip(self._phrases, self.start, state, strict=True)
        }
        told = []
        for phrase in self._given:
            told.append(left[phrase] > 0)
            left[phrase] -= 1
        return tuple(told)

    @staticmethod
    def _left(phrase: tuple[int, ...], state: tuple[int, int]) -> int:
        """How many times a phrase is still to come, if the sequence ended here."""
        begun, times = state
        return times - (begun == len(phrase))

    def _longer(self, state: State, token: int) -> tuple[bool, ...]:
        """Of each phrase whether the sequence ends in it, and this token goes on with its last word."""
        return tuple(
            begun == len(phrase) and self._goes_on(phrase, token)
            for phrase, (begun, _) in zip(self._phrases, state, strict=True)
        )

    def _read_one(self, state: State, token: int, longer: tuple[bool, ...]) -> State:
        new = []
        for phrase, borders, (begun, times), is_longer in zip(self._phrases, self._borders, state, longer, strict=True):
            if begun == len(phrase):
                begun, times = (borders[begun], times) if is_longer else (0, times - 1)
            if times > 0:
                while begun > 0 and phrase[begun] != token:
                    begun = borders[begun]
                begun += phrase[begun] == token
            new.append((begun, times))
        return tuple(new)

    def _next(self, state: State) -> set[State]:
        """All that one more token can lead to."""
        full = tuple(begun == len(phrase) for phrase, (begun, _) in zip(self._phrases, state, strict=True))
        told = {(token, self._longer(state, token)) for token in self._tokens}
        others = {(_OTHER, full), (_OTHER, (False,) * len(full))}
        return {self._read_one(state, *way) for way in told | others}

    def _shortest_ways(self) -> dict[State, int]:
        """The fewest tokens from every state that can be reached; nothing where those are too many."""
        leading: dict[State, set[State]] = {self.start: set()}  # to each state, those it is reached from
        waiting = deque([self.start])
        while waiting:
            state = waiting.popleft()
            for new in self._next(state):
                if new not in leading:
                    leading[new] = set()
                    waiting.append(new)
                leading[new].add(state)
            if len(leading) > _MOST_STATES:
                return {}
        shortest = {state: 0 for state in leading if not any(map(self._left, self._phrases, state))}
        waiting = deque(shortest)
        while waiting:
            state = waiting.popleft()
            for before in leading[state] - shortest.keys():
                shortest[before] = shortest[state] + 1
                waiting.append(before)
        return shortest


def _borders(phrase: tuple[int, ...]) -> list[int]:
    """Of the first n tokens, how many at their end also stand at their beginning, short of all (Knuth et al. 1977)."""
    borders = [0, 0]
    for token in phrase[1:]:
        length = borders[-1]
        while length > 0 and phrase[length] != token:
            length = borders[length]
        borders.append(length + (phrase[length] == token))
    return borders


def _overlap(phrases: Sequence[tuple[int, ...]]) -> bool:
    """Whether two can share tokens: one stands in the other, or the end of one is the beginning of the other."""
    return any(
        other[: len(part)] == part
        for one in phrases
        for other in phrases
        if one != other
        for first in range(len(one))
        for part in (one[first : first + len(other)],)
    )
