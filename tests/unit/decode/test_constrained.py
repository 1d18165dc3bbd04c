"""Phrases that must appear: against sums over all sequences, and where there is no room for them."""

from collections import Counter
from itertools import permutations, product

import pytest
import torch
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st
from tables import SHORT, SPOKEN, VOCABULARY, A, B, Bigrams, Chances, Rows, Said, Trees, log_probability

from attendo.decode.beam import Beam
from attendo.decode.constrained_beam import Candidate, ConstrainedBeam, Constraints, PhraseAutomaton, allocate_banks
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.decode.rules import BannedPhrases, ForcedPrefix, RepetitionPenalty, SuppressTokens
from attendo.decode.search import Rule, search
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, UNK

WORD = st.sampled_from((*SPOKEN, 6))
PHRASES = st.lists(st.lists(WORD, min_size=1, max_size=3), min_size=1, max_size=3)
LIMIT = 4
KINDS = {
    "one token": [[UNK]],
    "one phrase": [[B, UNK]],
    "two phrases": [[A, A], [UNK, B]],
    "overlapping": [[A, B], [B, UNK]],
    "repeated": [[B], [B]],
    "repeated phrase": [[A, B], [A, B]],
    "overlapping itself": [[UNK, UNK], [UNK, UNK]],
    "shared beginning": [[A, B], [A, UNK]],
    "one in the other": [[UNK], [A, UNK, B]],
    "repeated token in a phrase": [[B, B, A]],
}


def found(constraints: Constraints, limits: list[int], width: int, rules: tuple[Rule, ...] = ()) -> Frontier:
    strategy = ConstrainedBeam(width, constraints=constraints)
    asked = RowLimits.make(torch.tensor(limits))
    *_, last = search(Trees(), Said.nothing(*range(len(limits))), asked, strategy, [SuppressTokens(), *rules])
    return last.hypotheses


def spoken(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


def times(ids: list[int], phrase: list[int]) -> int:
    """How often it stands there, no token counted twice."""
    count = place = 0
    while place <= len(ids) - len(phrase):
        here = ids[place : place + len(phrase)] == phrase
        count, place = count + here, place + (len(phrase) if here else 1)
    return count


def holds(ids: list[int], phrases: list[list[int]]) -> bool:
    return all(times(ids, [*phrase]) >= count for phrase, count in Counter(map(tuple, phrases)).items())


def best_of_all(tree: int, phrases: list[list[int]], limit: int) -> list[int] | None:
    every = ([*ids, EOS] for tokens in range(limit + 1) for ids in product(SPOKEN, repeat=tokens))
    holding = [ids for ids in every if holds(ids, phrases)]
    return max(holding, key=lambda ids: log_probability(tree, ids) / len(ids), default=None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_beam_finds_the_best_of_all_sequences_that_hold_the_phrases(kind: str) -> None:
    trees, width = 3, VOCABULARY**2
    last = found(dict.fromkeys(range(trees), KINDS[kind]), [LIMIT] * trees, width)
    for tree in range(trees):
        ours = last.select_sentences(torch.tensor([tree]))
        assert spoken(ours)[0] == best_of_all(tree, KINDS[kind], LIMIT)
        assert ours.log_probability[0].item() == pytest.approx(log_probability(tree, spoken(ours)[0]), abs=1e-5)
        assert ours.ended[0]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_all_phrases_are_met_wherever_there_is_just_room_for_them(kind: str, width: int) -> None:
    """Nothing may be wasted: whoever does not begin at once, or says a shared token twice, comes too late."""
    phrases = KINDS[kind]
    room = next(n for n in range(9) if any(holds([*ids], phrases) for ids in product(SPOKEN, repeat=n)))
    constraints = dict.fromkeys(range(4), phrases)
    strategy = ConstrainedBeam(width, constraints=constraints)
    last = found(constraints, [room, room + 1] * 2, width)
    met = strategy.satisfied(last)
    for tree in range(4):
        assert met[tree * width] == (True,) * len(phrases)
        assert holds(spoken(last)[tree * width], phrases)
    there_is = last.log_probability != NEG_INF
    assert all(all(each) for each, real in zip(met, there_is.tolist(), strict=True) if real)
    short = found(constraints, [room - 1] * 2, width)
    real = short.log_probability != NEG_INF
    assert short.cut[real].all()
    assert not any(all(each) for each in strategy.satisfied(short))


@pytest.mark.parametrize("width", [2, 4])
def test_what_ended_holds_all_phrases_and_the_result_says_what_the_rest_holds(width: int) -> None:
    kinds = [*KINDS.values(), []]
    constraints = {n: kinds[n % len(kinds)] for n in range(33)}
    limits = [n % 5 for n in range(33)]
    last = found(constraints, limits, width)
    told = ConstrainedBeam(width, constraints=constraints).satisfied(last)
    seen = set()
    for row, (ids, met) in enumerate(zip(spoken(last), told, strict=True)):
        phrases = constraints[row // width]
        assert len(met) == len(phrases)
        asked: Counter[tuple[int, ...]] = Counter()
        for phrase, one in zip(phrases, met, strict=True):
            asked[tuple(phrase)] += 1
            assert one == (times(ids, phrase) >= asked[tuple(phrase)])
        assert all(met) or not last.ended[row]
        assert len(ids) - ids.count(EOS) <= limits[row // width]
        if last.log_probability[row] != NEG_INF:
            seen.add((all(met), bool(last.cut[row])))
    assert seen == {(True, False), (True, True), (False, True)}


def test_cut_answers_that_need_least_stand_first() -> None:
    """Room for two tokens: b b, hardly probable, lacks one token of b b b, and a a, far more probable, lacks three."""
    table: Chances = {BOS: {A: 0.9, B: 0.1}, A: {A: 0.9, B: 0.1}, B: {B: 0.1, A: 0.9}}
    strategy = ConstrainedBeam(6, constraints={0: [[B, B, B]]})
    asked = RowLimits.make(torch.tensor([2]))
    *_, last = search(Bigrams(table), Rows(torch.arange(1)), asked, strategy, [SuppressTokens()])
    there_is = last.hypotheses.log_probability.exp() > 1e-6
    rows = [ids for ids, real in zip(spoken(last.hypotheses), there_is, strict=True) if real]
    assert rows == [[B, B], [A, B], [A, A], [B, A]]
    assert strategy.satisfied(last.hypotheses)[0] == (False,)


def test_without_phrases_it_is_a_beam_bit_for_bit() -> None:
    limits = [n % 7 for n in range(30)]
    asked, rules = RowLimits.make(torch.tensor(limits)), [SuppressTokens(), RepetitionPenalty(1.3)]
    ranking = Ranking("gnmt", 0.6)
    for width in (1, 3):
        both = [
            list(search(Trees(), Said.nothing(*range(30)), asked, strategy, rules))
            for strategy in (Beam(width, ranking), ConstrainedBeam(width, ranking))
        ]
        assert len(both[0]) == len(both[1])
        one, other = both[0][-1].hypotheses, both[1][-1].hypotheses
        for name in ("ids", "length", "log_probability", "penalty", "ended", "cut"):
            assert torch.equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("width", [2, 5])
def test_D1_a_sentence_has_the_same_hypotheses_alone_and_among_others(width: int) -> None:
    kinds = [*KINDS.values(), []]
    constraints = {n: kinds[n % len(kinds)] for n in range(11)}
    limits = [(5 * n) % 8 + 1 for n in range(11)]
    together = found(constraints, limits, width)
    for tree, limit in enumerate(limits):
        strategy = ConstrainedBeam(width, constraints={0: constraints[tree]})
        *_, last = search(
            Trees(), Said.nothing(tree), RowLimits.make(torch.tensor([limit])), strategy, [SuppressTokens()]
        )
        alone, among = last.hypotheses, together.select_sentences(torch.tensor([tree]))
        assert spoken(alone) == spoken(among)
        for name in ("log_probability", "ended", "cut"):
            assert torch.equal(getattr(alone, name), getattr(among, name))


def test_a_phrase_is_met_where_it_costs_least() -> None:
    """The best answer of a plain beam holds what is asked, so it stays the best; the others must hold it too."""
    plain = Beam(3)
    asked = RowLimits.make(torch.tensor([9]))
    strategy = ConstrainedBeam(3, constraints={0: [[A, B]]})
    both = []
    for each in (plain, strategy):
        *_, last = search(Bigrams(SHORT), Rows(torch.arange(1)), asked, each, [SuppressTokens()])
        both.append(last.hypotheses)
    assert spoken(both[0])[0] == spoken(both[1])[0] == [A, B, EOS]
    assert strategy.satisfied(both[1]) == [(True,)] * 3


def test_other_rules_hold_beside_the_phrases() -> None:
    phrases = [[UNK], [A, B]]
    asked = RowLimits.make(torch.tensor([6] * 8), prefix=[[B]] * 8)
    strategy = ConstrainedBeam(4, constraints=dict.fromkeys(range(8), phrases))
    rules = [SuppressTokens(), BannedPhrases([[A, A], [B, UNK]]), ForcedPrefix()]
    *_, last = search(Trees(), Said.nothing(*range(8)), asked, strategy, rules)
    for ids, met, ended in zip(
        spoken(last.hypotheses), strategy.satisfied(last.hypotheses), last.hypotheses.ended.tolist(), strict=True
    ):
        assert not ids or ids[0] == B
        assert times(ids, [A, A]) == times(ids, [B, UNK]) == 0
        assert not ended or all(met)
    assert all(all(met) for met in strategy.satisfied(last.hypotheses)[::4])


def test_a_phrase_that_a_rule_forbids_is_told_not_to_be_met() -> None:
    strategy = ConstrainedBeam(3, constraints={0: [[A], [B, A]]})
    asked = RowLimits.make(torch.tensor([5]))
    *_, last = search(Trees(), Said.nothing(0), asked, strategy, [SuppressTokens(), BannedPhrases([[B, A]])])
    assert last.hypotheses.cut.all()
    assert strategy.satisfied(last.hypotheses)[0] == (True, False)


@given(PHRASES, st.lists(WORD, max_size=9))
def test_what_a_sequence_holds_is_what_plain_python_counts(phrases: list[list[int]], ids: list[int]) -> None:
    reader = PhraseAutomaton(phrases)
    asked: Counter[tuple[int, ...]] = Counter()
    expected = []
    for phrase in phrases:
        asked[tuple(phrase)] += 1
        expected.append(times(ids, phrase) >= asked[tuple(phrase)])
    state = reader.read(ids)
    assert reader.satisfied(state) == tuple(expected)
    assert (reader.count_tokens_left(state) == 0) == all(expected) == holds(ids, phrases)


@pytest.mark.parametrize("phrase", [[A, A, B], [A, B, A, B, B], [A, B, A, A], [A, A], [B]])
def test_a_phrase_is_found_where_it_begins_within_its_own_beginning(phrase: list[int]) -> None:
    reader = PhraseAutomaton([phrase] * 3)
    for ids in product((A, B), repeat=8):
        assert sum(reader.satisfied(reader.read(ids))) == min(3, times([*ids], phrase))


@given(PHRASES, st.lists(WORD, max_size=3))
def test_as_many_tokens_are_needed_as_the_shortest_way_has(phrases: list[list[int]], ids: list[int]) -> None:
    reader = PhraseAutomaton(phrases)
    needed = reader.count_tokens_left(reader.read(ids))
    tokens = sorted({token for phrase in phrases for token in phrase})
    for length in range(min(needed, 6)):
        assert not any(holds([*ids, *more], phrases) for more in product(tokens, repeat=length))
    state = reader.read(ids)
    for left in range(needed, 0, -1):
        state = reader.read(reader.advancing_tokens(state)[:1], state)
        assert reader.count_tokens_left(state) == left - 1


def test_with_more_overlaps_than_can_be_looked_at_there_is_still_a_way() -> None:
    phrases = [[*each] for each in permutations((4, 5, 6, 7), 3)][:14]
    reader = PhraseAutomaton(phrases)
    state, most = reader.start, sum(map(len, phrases))
    assert reader.count_tokens_left(state) == most
    said = []
    while reader.count_tokens_left(state):
        said.append(reader.advancing_tokens(state)[0])
        state = reader.read(said[-1:], state)
    assert len(said) <= most
    assert holds(said, phrases)


def test_places_are_shared_among_the_banks() -> None:
    ways = [Candidate(-float(n), 0, n, needed) for n, needed in enumerate([2, 2, 2, 2, 1, 1, 0])]
    assert [way.token for way in allocate_banks(ways, 3, 3)] == [0, 4, 6]
    assert [way.token for way in allocate_banks(ways, 3, 5)] == [0, 1, 2, 4, 6]  # what bank 0 leaves goes by value
    assert [way.token for way in allocate_banks(ways, 3, 2)] == [4, 6]  # fewer places than banks: what needs least
    assert [way.token for way in allocate_banks(ways, 1, 2)] == [0, 1]


def test_phrases_that_cannot_be_said_are_refused() -> None:
    with pytest.raises(UsageError, check=has_code("phrase_without_tokens")):
        ConstrainedBeam(2, constraints={0: [[]]})
    with pytest.raises(UsageError, check=has_code("phrase_with_control_tokens")):
        ConstrainedBeam(2, constraints={0: [[A, EOS]]})
