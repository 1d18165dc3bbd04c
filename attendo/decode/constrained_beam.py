"""Beam search with required phrases: dynamic beam allocation (Post and Vilar 2018), phrase automaton.

A phrase is satisfied if its tokens are consecutive and the next token does not extend its last word. Different phrases
may share tokens: "a b c" satisfies both "a b" and "b c". A phrase required n times must occur n times without shared
tokens. A requirement may list several phrases, such as the forms of a word: any of them satisfies it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from attendo.decode.beam import Beam, Candidates
from attendo.decode.frontier import NEG_INF, Frontier, difference
from attendo.decode.rules import check_phrases
from attendo.decode.search_tree import Fate
from attendo.text import EOS, PAD

Phrase = tuple[int, ...]
# A required phrase, or a list of phrases of which one is required.
Requirement = Sequence[int] | Sequence[Sequence[int]]
# For each distinct requirement: the number of tokens of each of its phrases that the sequence ends with, and its
# remaining occurrences. A complete phrase counts as satisfied unless the next token extends its last word.
PhraseState = tuple[tuple[tuple[int, ...], int], ...]
ExtendsLastWord = Callable[[tuple[int, ...], int], bool]  # whether a token extends the last word of a phrase
_MAX_STATES = 1_500  # limit of the search for the shortest completion of overlapping phrases
_OTHER_TOKEN = -1  # any token that is in no phrase
_Extended = tuple[tuple[bool, ...], ...]  # for each phrase of each requirement
Constraints = Mapping[int, Sequence[Requirement]]  # the requirements of each sentence, by request id


def never_extends(phrase: tuple[int, ...], token: int) -> bool:
    """Return False: every token is a word."""
    return False


class PhraseAutomaton:
    """An automaton that tracks the required phrases in a token sequence."""

    def __init__(self, requirements: Sequence[Requirement], extends_last_word: ExtendsLastWord = never_extends) -> None:
        self._extends_last_word = lru_cache(maxsize=None)(extends_last_word)
        self._required = [list_phrases(each) for each in requirements]
        times = Counter(self._required)
        self._groups = list(times)  # the phrases of each distinct requirement
        self._shortest = [min(map(len, group)) for group in self._groups]
        self._borders = [[_borders(phrase) for phrase in group] for group in self._groups]
        self._tokens = {token for group in self._groups for phrase in group for token in phrase}
        self._transitions: dict[tuple[PhraseState, int, _Extended], PhraseState] = {}
        self._advancing: dict[PhraseState, tuple[int, ...]] = {}
        self.start: PhraseState = tuple(((0,) * len(group), count) for group, count in times.items())
        self._distances = self._shortest_distances() if _overlap(self._groups) else {}

    def read(self, ids: Iterable[int], state: PhraseState | None = None) -> PhraseState:
        """Return the state after these tokens."""
        state = self.start if state is None else state
        for each in ids:
            longer = self._find_extended(state, each)
            token = each if each in self._tokens else _OTHER_TOKEN
            if (state, token, longer) not in self._transitions:
                self._transitions[state, token, longer] = self._advance(state, token, longer)
            state = self._transitions[state, token, longer]
        return state

    def count_tokens_left(self, state: PhraseState) -> int:
        """Return the fewest tokens that complete all phrases. It is an upper bound if too many phrases overlap."""
        if state in self._distances:
            return self._distances[state]
        total, saved = 0, 0
        for group, shortest, each in zip(self._groups, self._shortest, state, strict=True):
            times = self._times_left(group, each)
            rest = min(len(phrase) - matched for phrase, matched in zip(group, each[0], strict=True))
            total += times * shortest
            saved = max(saved, shortest - rest if times and rest else 0)  # of the phrase that is begun
        return total - saved

    def advancing_tokens(self, state: PhraseState) -> tuple[int, ...]:
        """Return the tokens that reduce `count_tokens_left`. There is at least one unless the count is 0."""
        if state not in self._advancing:
            now = self.count_tokens_left(state)
            nearer = [
                token for token in sorted(self._tokens) if self.count_tokens_left(self.read([token], state)) < now
            ]
            self._advancing[state] = tuple(nearer)
        return self._advancing[state]

    def find_satisfied(self, state: PhraseState) -> tuple[bool, ...]:
        """Return whether each requirement is satisfied, in the given order. Of equal ones, the first count first."""
        times_met = {
            group: required_times - self._times_left(group, each)
            for group, (_, required_times), each in zip(self._groups, self.start, state, strict=True)
        }
        results = []
        for group in self._required:
            results.append(times_met[group] > 0)
            times_met[group] -= 1
        return tuple(results)

    @staticmethod
    def _times_left(group: tuple[Phrase, ...], state: tuple[tuple[int, ...], int]) -> int:
        """Return the remaining occurrences of a requirement if the sequence ended here."""
        matched, times = state
        return times - any(number == len(phrase) for phrase, number in zip(group, matched, strict=True))

    def _find_extended(self, state: PhraseState, token: int) -> _Extended:
        """Return, for each phrase, whether the sequence ends with it and this token extends its last word."""
        return tuple(
            tuple(
                number == len(phrase) and self._extends_last_word(phrase, token)
                for phrase, number in zip(group, matched, strict=True)
            )
            for group, (matched, _) in zip(self._groups, state, strict=True)
        )

    def _advance(self, state: PhraseState, token: int, extended: _Extended) -> PhraseState:
        new = []
        for group, borders, (matched, times), longer in zip(self._groups, self._borders, state, extended, strict=True):
            if any(
                number == len(phrase) and not is_longer
                for phrase, number, is_longer in zip(group, matched, longer, strict=True)
            ):
                matched, times = (0,) * len(group), times - 1
            if times > 0:
                matched = tuple(
                    _match_longest(phrase, known, number, token)
                    for phrase, known, number in zip(group, borders, matched, strict=True)
                )
            new.append((matched, times))
        return tuple(new)

    def _successors(self, state: PhraseState) -> set[PhraseState]:
        """Return all states that one more token can reach."""
        full = tuple(
            tuple(number == len(phrase) for phrase, number in zip(group, matched, strict=True))
            for group, (matched, _) in zip(self._groups, state, strict=True)
        )
        phrase_tokens = {(token, self._find_extended(state, token)) for token in self._tokens}
        others = {(_OTHER_TOKEN, full), (_OTHER_TOKEN, tuple((False,) * len(each) for each in full))}
        return {self._advance(state, *token_and_extended) for token_and_extended in phrase_tokens | others}

    def _shortest_distances(self) -> dict[PhraseState, int]:
        """Return the fewest tokens to completion from every reachable state, or {} if there are too many states."""
        leading: dict[PhraseState, set[PhraseState]] = {self.start: set()}  # the predecessors of each state
        waiting = deque([self.start])
        while waiting:
            state = waiting.popleft()
            for new in self._successors(state):
                if new not in leading:
                    leading[new] = set()
                    waiting.append(new)
                leading[new].add(state)
            if len(leading) > _MAX_STATES:
                return {}
        shortest = {state: 0 for state in leading if not any(map(self._times_left, self._groups, state))}
        waiting = deque(shortest)
        while waiting:
            state = waiting.popleft()
            for before in leading[state] - shortest.keys():
                shortest[before] = shortest[state] + 1
                waiting.append(before)
        return shortest


def _borders(phrase: tuple[int, ...]) -> list[int]:
    """Return the length of the longest proper border of each prefix (Knuth et al. 1977)."""
    borders = [0, 0]
    for token in phrase[1:]:
        length = borders[-1]
        while length > 0 and phrase[length] != token:
            length = borders[length]
        borders.append(length + (phrase[length] == token))
    return borders


def _match_longest(phrase: Phrase, borders: Sequence[int], matched: int, token: int) -> int:
    """Return the number of tokens of a phrase that the sequence ends with after one more token."""
    if matched == len(phrase):
        matched = borders[matched]
    while matched > 0 and phrase[matched] != token:
        matched = borders[matched]
    return matched + (phrase[matched] == token)


def list_phrases(requirement: Requirement) -> tuple[Phrase, ...]:
    """Return the different phrases of a requirement."""
    if not requirement or isinstance(requirement[0], int):
        return (tuple(requirement),)  # type: ignore[arg-type]
    return tuple(dict.fromkeys(tuple(each) for each in requirement))  # type: ignore[arg-type]


def _overlap(groups: Sequence[tuple[Phrase, ...]]) -> bool:
    """Whether two requirements can share tokens: a phrase contains another, or its suffix is a prefix of another."""
    return any(
        other[: len(part)] == part
        for group in groups
        for rest in groups
        if group != rest
        for one in group
        for other in rest
        for first in range(len(one))
        for part in (one[first : first + len(other)],)
    )


class Candidate(NamedTuple):
    """One more token for a row, and the tokens needed after it to complete all phrases."""

    value: float
    row: int
    token: int
    tokens_left: int


@dataclass(frozen=True)
class ConstrainedBeam(Beam):
    """A beam whose answers end only when they contain all required phrases.

    Every row considers its best tokens and the tokens that advance a phrase. Rows are sorted into banks by the number
    of tokens they still need. Each bank has width / banks slots. Rows with improbable phrase tokens thus do not lose to
    rows without any. Unused slots go to the candidates with the highest value. If there are more banks than slots, they
    go to those that need the fewest tokens. A row that cannot complete all phrases before its limit loses to rows that
    can.

    All phrases are satisfied if the limit has room for them and no rule forbids them.
    `PhraseAutomaton.count_tokens_left` states how exactly the room is known. Otherwise the answer is cut, and
    `satisfied` returns the phrases that it contains. Answers that need the fewest tokens rank first. A sentence without
    phrases gets the answer of a plain beam.
    """

    constraints: Constraints = field(default_factory=dict, hash=False)
    extends_last_word: ExtendsLastWord = field(default=never_extends, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for requirements in self.constraints.values():
            for each in requirements:
                check_phrases(list_phrases(each), "required")

    def find_satisfied(self, hypotheses: Frontier) -> list[tuple[bool, ...]]:
        """Return which phrases of its sentence each row contains, in the given order."""
        return [phrases.find_satisfied(state) for phrases, state in self._phrase_states(hypotheses)]

    def select_candidates(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> Candidates:
        chosen = [
            _pad_candidates(each.ending, each.selected, self.width, each.first)
            for each in self._sort_candidates(frontier, ruled)
        ]
        return _to_candidates(chosen, log_probs, ruled)

    def list_rejected(self, frontier: Frontier, ruled: Float[Tensor, "R V"]) -> list[list[tuple[Candidate, Fate]]]:
        """Return the 2·width best rejected candidates of each sentence, with the reason. Rows count from its first."""
        return [
            [
                (candidate._replace(row=candidate.row - each.first), fate)
                for candidate, fate in each.rejections[: 2 * self.width]
            ]
            for each in self._sort_candidates(frontier, ruled)
        ]

    def _sort_candidates(self, frontier: Frontier, ruled: Float[Tensor, "R V"]) -> list["_SortedCandidates"]:
        states = self._phrase_states(frontier)
        values = self._candidate_values(states, frontier, ruled)
        room = (frontier.limits.max_length - frontier.length - 1).tolist()
        results = []
        for first in range(0, len(values), self.width):
            phrases = states[first][0]
            every = [
                Candidate(value, row, token, phrases.count_tokens_left(phrases.read([token], states[row][1])))
                for row in range(first, first + self.width)
                for token, value in values[row].items()
            ]
            # A stable sort, so that ties go to the first row.
            every.sort(key=lambda candidate: -candidate.value)
            complete = [candidate for candidate in every if candidate.tokens_left == 0][: self.width]
            going = [candidate for candidate in every if candidate.token != EOS]
            in_time = [candidate for candidate in going if candidate.tokens_left <= room[candidate.row]] or going
            selected = allocate_banks(in_time, phrases.count_tokens_left(phrases.start) + 1, self.width)
            results.append(
                _SortedCandidates(
                    first, every, [candidate for candidate in complete if candidate.token == EOS], in_time, selected
                )
            )
        return results

    def rank_class(self, frontier: Frontier) -> Integer[Tensor, " R"]:
        there_is = frontier.log_probability != NEG_INF
        if not (there_is & frontier.cut).any():
            return super().rank_class(frontier)
        needed = [1 + phrases.count_tokens_left(state) for phrases, state in self._phrase_states(frontier)]
        rank_classes = torch.tensor(needed, device=there_is.device).masked_fill(~there_is, max(needed) + 1)
        return rank_classes.masked_fill(frontier.ended, 0)

    @cached_property
    def _automata(self) -> dict[int, PhraseAutomaton]:
        return {
            number: PhraseAutomaton(phrases, self.extends_last_word) for number, phrases in self.constraints.items()
        }

    def _phrase_states(self, frontier: Frontier) -> list[tuple[PhraseAutomaton, PhraseState]]:
        """Return the automaton of each row's sentence, and the row's state."""
        found = []
        rows = zip(frontier.limits.request_id.tolist(), frontier.ids.tolist(), frontier.length.tolist(), strict=True)
        for number, ids, length in rows:
            phrases = self._automata.get(number, _NO_PHRASES)
            found.append((phrases, phrases.read(ids[1 : length + 1])))
        return found

    def _candidate_values(
        self, states: list[tuple[PhraseAutomaton, PhraseState]], frontier: Frontier, ruled: Float[Tensor, "R V"]
    ) -> list[dict[int, float]]:
        """Return the candidate tokens of each row with their values, without forbidden tokens."""
        values = frontier.value[:, None] + ruled
        best = values.topk(min(2 * self.width, values.size(1)))
        wanted = [phrases.advancing_tokens(state) for phrases, state in states]
        longest = max(map(len, wanted), default=0)
        # Pad all rows to the same number of tokens with EOS, which is always considered.
        ids = torch.tensor([[*each, *[EOS] * (longest + 1 - len(each))] for each in wanted], device=ruled.device)
        tokens = torch.cat((best.indices, ids), dim=1).tolist()
        reached = torch.cat((best.values, values.gather(1, ids)), dim=1).tolist()
        return [
            {token: value for token, value in zip(*row, strict=True) if value != NEG_INF}
            for row in zip(tokens, reached, strict=True)
        ]


@dataclass(frozen=True)
class _SortedCandidates:
    """The candidates of one sentence, best first."""

    first: int
    candidates: list[Candidate]
    ending: list[Candidate]  # EOS with all phrases satisfied
    in_time: list[Candidate]  # those with room for all phrases before the limit, or all if there are none
    selected: list[Candidate]  # those that got a slot

    @property
    def rejections(self) -> list[tuple[Candidate, Fate]]:
        chosen, in_time = {*self.ending, *self.selected}, {*self.in_time}
        return [
            (candidate, self._fate(candidate, candidate in in_time))
            for candidate in self.candidates
            if candidate not in chosen
        ]

    @staticmethod
    def _fate(candidate: Candidate, in_time: bool) -> Fate:
        if candidate.token == EOS:
            return "ends, but phrases are missing" if candidate.tokens_left else "ends, but not among the best W"
        return "its bank is full" if in_time else "no room left for the phrases"


def allocate_banks(candidates: Sequence[Candidate], banks: int, width: int) -> list[Candidate]:
    """Return the `width` candidates that get a slot. `candidates` are sorted best first; a bank is `tokens_left`."""
    share = width // banks
    room = {0: share + width % banks}
    chosen: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in candidates:
        left = room.get(candidate.tokens_left, share)
        room[candidate.tokens_left] = left - 1
        (chosen if left > 0 else others).append(candidate)
    if share == 0:
        others.sort(key=lambda candidate: candidate.tokens_left)
    return sorted([*chosen, *others][:width], key=lambda candidate: -candidate.value)


_NO_PHRASES = PhraseAutomaton(())


def _pad_candidates(ending: list[Candidate], going: list[Candidate], width: int, first: int) -> list[Candidate]:
    """Return 2·width candidates as `Beam` expects: first `width` that end, then `width` that continue."""
    nothing = [Candidate(NEG_INF, first, token, 0) for token in (EOS, PAD)]
    return [*ending, *[nothing[0]] * (width - len(ending)), *going, *[nothing[1]] * (width - len(going))]


def _to_candidates(
    chosen: list[list[Candidate]], log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
) -> Candidates:
    device = log_probs.device
    parents = torch.tensor([[candidate.row for candidate in each] for each in chosen], device=device)
    ids = torch.tensor([[candidate.token for candidate in each] for each in chosen], device=device)
    there_is = torch.tensor([[candidate.value != NEG_INF for candidate in each] for each in chosen], device=device)
    log_probability, value = log_probs[parents, ids], ruled[parents, ids]
    return Candidates(
        parents,
        ids,
        log_probability=torch.where(there_is, log_probability, NEG_INF),
        penalty=torch.where(there_is, difference(value, log_probability), 0.0),
    )
