"""Beam search with required phrases: compared with all sequences, and with limits too small for the phrases."""

from collections import Counter
from itertools import permutations, product

import pytest
import torch
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st
from search_rows import make_limits
from toy_networks import (
    SHORT,
    TEXT_TOKENS,
    VOCABULARY,
    A,
    B,
    Bigrams,
    BigramState,
    BigramTable,
    Trees,
    TreeState,
    log_probability,
)

from attendo.decode.beam import Beam
from attendo.decode.constrained_beam import Candidate, ConstrainedBeam, Constraints, PhraseAutomaton, allocate_banks
from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.rules import BannedPhrases, ForcedPrefix, RepetitionPenalty, SuppressTokens
from attendo.decode.search import Rule, search
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, UNK

WORD = st.sampled_from((*TEXT_TOKENS, 6))
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


def search_hypotheses(
    constraints: Constraints, limits: list[int], width: int, rules: tuple[Rule, ...] = ()
) -> Frontier:
    strategy = ConstrainedBeam(width, constraints=constraints)
    row_limits = make_limits(torch.tensor(limits))
    *_, last = search(Trees(), TreeState.start(*range(len(limits))), row_limits, strategy, [SuppressTokens(), *rules])
    return last.hypotheses


def token_ids(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


def count_phrase(ids: list[int], phrase: list[int]) -> int:
    """Number of non-overlapping occurrences."""
    count = position = 0
    while position <= len(ids) - len(phrase):
        found = ids[position : position + len(phrase)] == phrase
        count, position = count + found, position + (len(phrase) if found else 1)
    return count


def contains_phrases(ids: list[int], phrases: list[list[int]]) -> bool:
    return all(count_phrase(ids, [*phrase]) >= count for phrase, count in Counter(map(tuple, phrases)).items())


def find_best_sequence(tree: int, phrases: list[list[int]], limit: int) -> list[int] | None:
    sequences = ([*ids, EOS] for tokens in range(limit + 1) for ids in product(TEXT_TOKENS, repeat=tokens))
    candidates = [ids for ids in sequences if contains_phrases(ids, phrases)]
    return max(candidates, key=lambda ids: log_probability(tree, ids) / len(ids), default=None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_beam_finds_the_best_sequence_with_all_phrases(kind: str) -> None:
    trees, width = 3, VOCABULARY**2
    last = search_hypotheses(dict.fromkeys(range(trees), KINDS[kind]), [LIMIT] * trees, width)
    for tree in range(trees):
        ours = last.select_sentences(torch.tensor([tree]))
        assert token_ids(ours)[0] == find_best_sequence(tree, KINDS[kind], LIMIT)
        assert ours.log_probability[0].item() == pytest.approx(log_probability(tree, token_ids(ours)[0]), abs=1e-5)
        assert ours.ended[0]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_all_phrases_are_met_at_the_smallest_possible_limit(kind: str, width: int) -> None:
    """The limit has no spare token: a row that starts late or repeats a shared token misses a phrase."""
    phrases = KINDS[kind]
    min_limit = next(
        n for n in range(9) if any(contains_phrases([*ids], phrases) for ids in product(TEXT_TOKENS, repeat=n))
    )
    constraints = dict.fromkeys(range(4), phrases)
    strategy = ConstrainedBeam(width, constraints=constraints)
    last = search_hypotheses(constraints, [min_limit, min_limit + 1] * 2, width)
    met = strategy.find_satisfied(last)
    for tree in range(4):
        assert met[tree * width] == (True,) * len(phrases)
        assert contains_phrases(token_ids(last)[tree * width], phrases)
    exists = last.log_probability != NEG_INF
    assert all(all(each) for each, real in zip(met, exists.tolist(), strict=True) if real)
    too_short = search_hypotheses(constraints, [min_limit - 1] * 2, width)
    real = too_short.log_probability != NEG_INF
    assert too_short.cut[real].all()
    assert not any(all(each) for each in strategy.find_satisfied(too_short))


@pytest.mark.parametrize("width", [2, 4])
def test_ended_rows_meet_all_phrases_and_satisfied_reports_the_rest(width: int) -> None:
    kinds = [*KINDS.values(), []]
    constraints = {n: kinds[n % len(kinds)] for n in range(33)}
    limits = [n % 5 for n in range(33)]
    last = search_hypotheses(constraints, limits, width)
    satisfied = ConstrainedBeam(width, constraints=constraints).find_satisfied(last)
    seen = set()
    for row, (ids, met) in enumerate(zip(token_ids(last), satisfied, strict=True)):
        phrases = constraints[row // width]
        assert len(met) == len(phrases)
        required: Counter[tuple[int, ...]] = Counter()
        for phrase, one in zip(phrases, met, strict=True):
            required[tuple(phrase)] += 1
            assert one == (count_phrase(ids, phrase) >= required[tuple(phrase)])
        assert all(met) or not last.ended[row]
        assert len(ids) - ids.count(EOS) <= limits[row // width]
        if last.log_probability[row] != NEG_INF:
            seen.add((all(met), bool(last.cut[row])))
    assert seen == {(True, False), (True, True), (False, True)}


def test_cut_rows_with_fewer_missing_tokens_rank_first() -> None:
    """The limit is two tokens. b b lacks one token of b b b. a a is far more probable but lacks three."""
    table: BigramTable = {BOS: {A: 0.9, B: 0.1}, A: {A: 0.9, B: 0.1}, B: {B: 0.1, A: 0.9}}
    strategy = ConstrainedBeam(6, constraints={0: [[B, B, B]]})
    row_limits = make_limits(torch.tensor([2]))
    *_, last = search(Bigrams(table), BigramState(torch.arange(1)), row_limits, strategy, [SuppressTokens()])
    exists = last.hypotheses.log_probability.exp() > 1e-6
    rows = [ids for ids, real in zip(token_ids(last.hypotheses), exists, strict=True) if real]
    assert rows == [[B, B], [A, B], [A, A], [B, A]]
    assert strategy.find_satisfied(last.hypotheses)[0] == (False,)


def test_without_phrases_it_equals_a_plain_beam_bit_for_bit() -> None:
    limits = [n % 7 for n in range(30)]
    row_limits, rules = make_limits(torch.tensor(limits)), [SuppressTokens(), RepetitionPenalty(1.3)]
    ranking = Ranking("gnmt", 0.6)
    for width in (1, 3):
        both = [
            list(search(Trees(), TreeState.start(*range(30)), row_limits, strategy, rules))
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
    together = search_hypotheses(constraints, limits, width)
    for tree, limit in enumerate(limits):
        strategy = ConstrainedBeam(width, constraints={0: constraints[tree]})
        *_, last = search(
            Trees(), TreeState.start(tree), make_limits(torch.tensor([limit])), strategy, [SuppressTokens()]
        )
        alone, among = last.hypotheses, together.select_sentences(torch.tensor([tree]))
        assert token_ids(alone) == token_ids(among)
        for name in ("log_probability", "ended", "cut"):
            assert torch.equal(getattr(alone, name), getattr(among, name))


def test_a_phrase_of_the_best_answer_keeps_it_the_best() -> None:
    """The best answer of a plain beam contains the phrase, so it stays the best. The others must contain it too."""
    plain = Beam(3)
    row_limits = make_limits(torch.tensor([9]))
    strategy = ConstrainedBeam(3, constraints={0: [[A, B]]})
    both = []
    for each in (plain, strategy):
        *_, last = search(Bigrams(SHORT), BigramState(torch.arange(1)), row_limits, each, [SuppressTokens()])
        both.append(last.hypotheses)
    assert token_ids(both[0])[0] == token_ids(both[1])[0] == [A, B, EOS]
    assert strategy.find_satisfied(both[1]) == [(True,)] * 3


def test_other_rules_apply_together_with_phrases() -> None:
    phrases = [[UNK], [A, B]]
    row_limits = make_limits(torch.tensor([6] * 8), prefix=[[B]] * 8)
    strategy = ConstrainedBeam(4, constraints=dict.fromkeys(range(8), phrases))
    rules = [SuppressTokens(), BannedPhrases([[A, A], [B, UNK]]), ForcedPrefix()]
    *_, last = search(Trees(), TreeState.start(*range(8)), row_limits, strategy, rules)
    for ids, met, ended in zip(
        token_ids(last.hypotheses),
        strategy.find_satisfied(last.hypotheses),
        last.hypotheses.ended.tolist(),
        strict=True,
    ):
        assert not ids or ids[0] == B
        assert count_phrase(ids, [A, A]) == count_phrase(ids, [B, UNK]) == 0
        assert not ended or all(met)
    assert all(all(met) for met in strategy.find_satisfied(last.hypotheses)[::4])


def test_a_banned_phrase_is_reported_as_not_met() -> None:
    strategy = ConstrainedBeam(3, constraints={0: [[A], [B, A]]})
    row_limits = make_limits(torch.tensor([5]))
    *_, last = search(Trees(), TreeState.start(0), row_limits, strategy, [SuppressTokens(), BannedPhrases([[B, A]])])
    assert last.hypotheses.cut.all()
    assert strategy.find_satisfied(last.hypotheses)[0] == (True, False)


@given(PHRASES, st.lists(WORD, max_size=9))
def test_satisfied_phrases_equal_those_counted_in_plain_python(phrases: list[list[int]], ids: list[int]) -> None:
    automaton = PhraseAutomaton(phrases)
    required: Counter[tuple[int, ...]] = Counter()
    expected = []
    for phrase in phrases:
        required[tuple(phrase)] += 1
        expected.append(count_phrase(ids, phrase) >= required[tuple(phrase)])
    state = automaton.read(ids)
    assert automaton.find_satisfied(state) == tuple(expected)
    assert (automaton.count_tokens_left(state) == 0) == all(expected) == contains_phrases(ids, phrases)


@pytest.mark.parametrize("phrase", [[A, A, B], [A, B, A, B, B], [A, B, A, A], [A, A], [B]])
def test_a_phrase_that_overlaps_its_own_prefix_is_found(phrase: list[int]) -> None:
    automaton = PhraseAutomaton([phrase] * 3)
    for ids in product((A, B), repeat=8):
        assert sum(automaton.find_satisfied(automaton.read(ids))) == min(3, count_phrase([*ids], phrase))


@given(PHRASES, st.lists(WORD, max_size=3))
def test_tokens_left_is_the_length_of_the_shortest_completion(phrases: list[list[int]], ids: list[int]) -> None:
    automaton = PhraseAutomaton(phrases)
    needed = automaton.count_tokens_left(automaton.read(ids))
    tokens = sorted({token for phrase in phrases for token in phrase})
    for length in range(min(needed, 6)):
        assert not any(contains_phrases([*ids, *more], phrases) for more in product(tokens, repeat=length))
    state = automaton.read(ids)
    for left in range(needed, 0, -1):
        state = automaton.read(automaton.advancing_tokens(state)[:1], state)
        assert automaton.count_tokens_left(state) == left - 1


def test_with_too_many_overlaps_a_completion_is_still_found() -> None:
    phrases = [[*each] for each in permutations((4, 5, 6, 7), 3)][:14]
    automaton = PhraseAutomaton(phrases)
    state, total = automaton.start, sum(map(len, phrases))
    assert automaton.count_tokens_left(state) == total
    ids = []
    while automaton.count_tokens_left(state):
        ids.append(automaton.advancing_tokens(state)[0])
        state = automaton.read(ids[-1:], state)
    assert len(ids) <= total
    assert contains_phrases(ids, phrases)


def test_beam_slots_are_divided_among_the_banks() -> None:
    candidates = [Candidate(-float(n), 0, n, needed) for n, needed in enumerate([2, 2, 2, 2, 1, 1, 0])]
    assert [candidate.token for candidate in allocate_banks(candidates, 3, 3)] == [0, 4, 6]
    assert [candidate.token for candidate in allocate_banks(candidates, 3, 5)] == [
        0,
        1,
        2,
        4,
        6,
    ]  # free slots of bank 0 go to the best values
    assert [candidate.token for candidate in allocate_banks(candidates, 3, 2)] == [
        4,
        6,
    ]  # fewer slots than banks: the fewest missing tokens win
    assert [candidate.token for candidate in allocate_banks(candidates, 1, 2)] == [0, 1]


def test_empty_phrases_and_control_tokens_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("phrase_without_tokens")):
        ConstrainedBeam(2, constraints={0: [[]]})
    with pytest.raises(UsageError, check=has_code("phrase_with_control_tokens")):
        ConstrainedBeam(2, constraints={0: [[A, EOS]]})
