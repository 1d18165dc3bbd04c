"""Phrases that must be said: how much of them a sequence of tokens holds, and what it still takes.

A phrase is held where its tokens stand side by side. Different phrases may share tokens, "a b c" holds both "a b" and
"b c"; the same phrase asked for n times must stand there n times, no token counted twice.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence

# Of each different phrase: how many of its tokens the sequence ends in, and how many times it is still to come.
State = tuple[tuple[int, int], ...]

_MOST_STATES = 1_500  # looked at to find the shortest way through phrases that overlap
_OTHER = -1  # stands for every token that is in no phrase


class Phrases:
    """Reads sequences token by token."""

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        self._given = [tuple(phrase) for phrase in phrases]
        times = Counter(self._given)
        self._phrases = list(times)
        self._borders = [_borders(phrase) for phrase in self._phrases]
        self._tokens = {token for phrase in self._phrases for token in phrase}
        self._after: dict[tuple[State, int], State] = {}
        self._wanted: dict[State, tuple[int, ...]] = {}
        self.start: State = tuple((0, count) for count in times.values())
        self._shortest = self._shortest_ways() if _overlap(self._phrases) else {}

    def read(self, ids: Iterable[int], state: State | None = None) -> State:
        """What these tokens lead to."""
        state = self.start if state is None else state
        for each in ids:
            token = each if each in self._tokens else _OTHER
            if (state, token) not in self._after:
                self._after[state, token] = self._read_one(state, token)
            state = self._after[state, token]
        return state

    def needed(self, state: State) -> int:
        """How many more tokens it takes to say all phrases: the fewest, or more where many overlap in many ways."""
        if state in self._shortest:
            return self._shortest[state]
        missing = sum(times * len(phrase) for phrase, (_, times) in zip(self._phrases, state, strict=True))
        return missing - max((begun for begun, _ in state), default=0)

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
            phrase: asked - times
            for phrase, (_, asked), (_, times) in zip(self._phrases, self.start, state, strict=True)
        }
        told = []
        for phrase in self._given:
            told.append(left[phrase] > 0)
            left[phrase] -= 1
        return tuple(told)

    def _read_one(self, state: State, token: int) -> State:
        new = []
        for phrase, borders, (begun, times) in zip(self._phrases, self._borders, state, strict=True):
            if times > 0:
                while begun > 0 and phrase[begun] != token:
                    begun = borders[begun]
                begun += phrase[begun] == token
                if begun == len(phrase):
                    begun, times = 0, times - 1
            new.append((begun, times))
        return tuple(new)

    def _shortest_ways(self) -> dict[State, int]:
        """The fewest tokens from every state that can be reached; nothing where those are too many."""
        leading: dict[State, set[State]] = {self.start: set()}  # to each state, those it is reached from
        waiting = deque([self.start])
        while waiting:
            state = waiting.popleft()
            for token in (*self._tokens, _OTHER):
                new = self._read_one(state, token)
                if new not in leading:
                    leading[new] = set()
                    waiting.append(new)
                leading[new].add(state)
            if len(leading) > _MOST_STATES:
                return {}
        ways = {state: 0 for state in leading if not any(times for _, times in state)}
        waiting = deque(ways)
        while waiting:
            state = waiting.popleft()
            for before in leading[state] - ways.keys():
                ways[before] = ways[state] + 1
                waiting.append(before)
        return ways


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
