"""Rules: by hand on tables of bigrams, against plain Python for any row, and against transformers."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st
from tables import SHORT, SPOKEN, VOCABULARY, A, B, Bigrams, Chances, Rows, Said, Trees, log_probability
from torch import Tensor
from waiting import Watch

from attendo.decode.beam import Beam
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.rules import (
    BannedPhrases,
    ForcedPrefix,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressTokens,
)
from attendo.decode.search import Rule, Strategy, search
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, UNK

WORD = st.sampled_from(SPOKEN)
SENTENCES = st.lists(st.lists(WORD, max_size=7), min_size=1, max_size=4)
PHRASES = st.lists(st.lists(WORD, min_size=1, max_size=4), min_size=1, max_size=5)


def by_hand(table: Chances, rules: Sequence[Rule], asked: RowLimits, strategy: Strategy | None = None) -> Frontier:
    *_, last = search(Bigrams(table), Rows(torch.arange(1)), asked, strategy or Greedy(), [SuppressTokens(), *rules])
    return last.hypotheses


def asked(limit: int = 9, least: int = 0, prefix: Sequence[int] = ()) -> RowLimits:
    return RowLimits.make(torch.tensor([limit]), least, [prefix])


def said(sentences: list[list[int]], spare: int = 2) -> Frontier:
    """A frontier whose rows have said this, with room behind it."""
    capacity = max(map(len, sentences)) + 1 + spare
    rows = [[BOS, *each, *[PAD] * (capacity - 1 - len(each))] for each in sentences]
    start = Frontier.start(RowLimits.make(torch.full((len(rows),), capacity - 2)), capacity=capacity)
    return replace(start, ids=torch.tensor(rows), length=torch.tensor([len(each) for each in sentences]))


def flat(frontier: Frontier) -> Tensor:
    return torch.randn(frontier.length.size(0), VOCABULARY, generator=torch.Generator().manual_seed(1)).log_softmax(-1)


def forbidden(rule: Rule, frontier: Frontier) -> list[set[int]]:
    """What each row may not say; all else must keep its number."""
    given = flat(frontier)
    ruled = rule(given.clone(), frontier)
    assert torch.equal(torch.where(ruled == NEG_INF, given, ruled), given)
    return [{token for token in range(VOCABULARY) if row[token] == NEG_INF} for row in ruled]


def spoken(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


def holds(ids: Sequence[int], phrase: Sequence[int]) -> bool:
    return any([*ids[n : n + len(phrase)]] == [*phrase] for n in range(len(ids)))


@pytest.mark.parametrize(
    ("least", "ids", "probability"),
    [
        (0, [A, B, EOS], 0.6 * 0.7 * 0.5),
        (2, [A, B, EOS], 0.6 * 0.7 * 0.5),
        (3, [A, B, A, B, EOS], 0.6 * 0.7 * 0.4 * 0.7 * 0.5),  # a b a would go on with b anyway
    ],
)
def test_no_end_before_the_least_length(least: int, ids: list[int], probability: float) -> None:
    last = by_hand(SHORT, [MinLength()], asked(least=least))
    assert spoken(last) == [ids]
    assert last.log_probability.item() == pytest.approx(math.log(probability))
    assert last.penalty.item() == 0


def test_each_row_has_a_least_length_of_its_own() -> None:
    frontier = said([[], [A], [A, B], [A, B, A]])
    frontier = replace(frontier, limits=replace(frontier.limits, min_length=torch.tensor([1, 1, 3, 3])))
    assert forbidden(MinLength(), frontier) == [{EOS}, set(), {EOS}, set()]


def test_where_the_least_length_is_beyond_the_limit_the_answer_is_cut() -> None:
    last = by_hand(SHORT, [MinLength()], asked(limit=2, least=5))
    assert spoken(last) == [[A, B]]
    assert last.cut.item()


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2), Sampling(2)], ids=["greedy", "beam", "sample"])
def test_an_answer_begins_with_its_prefix_and_keeps_the_models_log_probability(strategy: Strategy) -> None:
    last = by_hand(SHORT, [ForcedPrefix()], asked(prefix=[B, A]), strategy)
    assert all(ids[:2] == [B, A] for ids in spoken(last))
    assert (last.penalty == 0).all()
    best = last.log_probability.max().item()
    assert best <= math.log(0.3 * 0.4 * 0.7 * 0.5) + 1e-6
    if isinstance(strategy, Greedy):
        assert spoken(last) == [[B, A, B, EOS]]
        assert best == pytest.approx(math.log(0.3 * 0.4 * 0.7 * 0.5))


def test_sentences_have_prefixes_of_different_lengths() -> None:
    prefixes = [[], [B], [UNK, A, A], [A, B]]
    many = RowLimits.make(torch.tensor([5] * 4), prefix=prefixes)
    rules = [SuppressTokens(), ForcedPrefix()]
    *_, last = search(Trees(), Said.nothing(0, 1, 2, 3), many, Beam(3), rules)
    for n, prefix in enumerate(prefixes):
        *_, alone = search(Trees(), Said.nothing(n), RowLimits.make(torch.tensor([5]), prefix=[prefix]), Beam(3), rules)
        rows = last.hypotheses.select_sentences(torch.tensor([n]))
        assert spoken(rows) == spoken(alone.hypotheses)
        assert torch.equal(rows.log_probability, alone.hypotheses.log_probability)
        for ids, told in zip(spoken(rows), rows.log_probability.tolist(), strict=True):
            assert ids[: len(prefix)] == prefix
            assert told == pytest.approx(log_probability(n, ids), abs=1e-5)


def test_a_prefix_longer_than_the_limit_is_cut() -> None:
    last = by_hand(SHORT, [ForcedPrefix()], asked(limit=2, prefix=[B, A, B]))
    assert spoken(last) == [[B, A]]
    assert last.cut.item()


def test_no_other_rule_reaches_into_the_prefix() -> None:
    rules = [
        SuppressTokens((A,)),
        BannedPhrases([[A, A]]),
        NoRepeatNgram(1),
        RepetitionPenalty(3.0),
        MinLength(),
        ForcedPrefix(),
    ]
    last = by_hand(SHORT, rules, asked(prefix=[A, A, A], least=2))
    assert spoken(last)[0][:3] == [A, A, A]
    assert last.log_probability.item() == pytest.approx(math.log(0.6 * 0.1 * 0.1 * 0.7 * 0.5))  # then b and the end
    assert last.penalty.item() == 0


@pytest.mark.parametrize(
    ("phrases", "ids"),
    [
        ([[A]], [B, EOS]),
        ([[A, B]], [A, EOS]),
        ([[A, B], [B, B]], [A, EOS]),
        ([[B, A, B]], [A, B, EOS]),
        ([[A], [B]], [EOS]),
        ([[UNK]], [A, B, EOS]),
    ],
)
def test_a_phrase_is_banned_when_its_last_token_would_complete_it(phrases: list[list[int]], ids: list[int]) -> None:
    assert spoken(by_hand(SHORT, [BannedPhrases(phrases)], asked())) == [ids]


@given(SENTENCES, PHRASES)
def test_banned_phrases_as_plain_python_has_them(sentences: list[list[int]], phrases: list[list[int]]) -> None:
    expected = [
        {phrase[-1] for phrase in phrases if [*([None] * 9), *ids][len(ids) + 10 - len(phrase) :] == phrase[:-1]}
        for ids in sentences
    ]
    assert forbidden(BannedPhrases(phrases), said(sentences)) == expected
    for ids, alone in zip(sentences, expected, strict=True):
        assert forbidden(BannedPhrases(phrases), said([ids], spare=0)) == [alone]


def test_no_banned_phrase_changes_nothing() -> None:
    assert forbidden(BannedPhrases(()), said([[A], []])) == [set(), set()]


def test_no_hypothesis_of_a_beam_holds_a_banned_phrase() -> None:
    phrases = [[A, A], [UNK], [B, A, B]]
    rules = [SuppressTokens(), BannedPhrases(phrases)]
    *_, last = search(Trees(), Said.nothing(*range(12)), RowLimits.make(torch.tensor([6] * 12)), Beam(4), rules)
    rows = spoken(last.hypotheses)
    assert sum(map(len, rows)) > 60
    assert not any(holds(ids, phrase) for ids in rows for phrase in phrases)


@given(SENTENCES, st.integers(1, 5))
def test_no_ngram_twice_as_plain_python_has_it(sentences: list[list[int]], size: int) -> None:
    expected = []
    for ids in sentences:
        every = [BOS, *ids]
        ngrams = {tuple(every[n : n + size]) for n in range(len(every) - size + 1)}
        tail = tuple(every[len(every) - size + 1 :]) if len(every) >= size - 1 else None
        expected.append({ngram[-1] for ngram in ngrams if ngram[:-1] == tail})
    assert forbidden(NoRepeatNgram(size), said(sentences)) == expected
    for ids, alone in zip(sentences, expected, strict=True):
        assert forbidden(NoRepeatNgram(size), said([ids], spare=0)) == [alone]


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 5))
def test_no_ngram_twice_as_transformers_has_it(seed: int, length: int, size: int) -> None:
    transformers = pytest.importorskip("transformers")
    dice = torch.Generator().manual_seed(seed)
    ids = torch.tensor(SPOKEN)[torch.randint(len(SPOKEN), (5, length), generator=dice)]
    frontier = said(ids.tolist())
    theirs = transformers.NoRepeatNGramLogitsProcessor(size)(frontier.ids[:, : length + 1], flat(frontier))
    assert torch.equal(NoRepeatNgram(size)(flat(frontier), frontier), theirs)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_hypothesis_of_a_beam_has_an_ngram_twice(size: int) -> None:
    rules = [SuppressTokens(), NoRepeatNgram(size)]
    *_, last = search(Trees(), Said.nothing(*range(12)), RowLimits.make(torch.tensor([7] * 12)), Beam(4), rules)
    longest = 0
    for ids in spoken(last.hypotheses):
        ngrams = [tuple(ids[n : n + size]) for n in range(len(ids) - size + 1)]
        assert len(ngrams) == len({*ngrams})
        longest = max(longest, len(ngrams))
    assert longest > 2


@given(st.integers(0, 2**32), st.integers(0, 9), st.sampled_from([0.5, 1.0, 1.2, 2.0]))
def test_the_repetition_penalty_is_that_of_transformers_on_log_probabilities(
    seed: int, length: int, penalty: float
) -> None:
    transformers = pytest.importorskip("transformers")
    dice = torch.Generator().manual_seed(seed)
    ids = torch.tensor(SPOKEN)[torch.randint(len(SPOKEN), (5, length), generator=dice)]
    frontier = said(ids.tolist())
    theirs = transformers.RepetitionPenaltyLogitsProcessor(penalty)(frontier.ids[:, : length + 1], flat(frontier))
    assert torch.equal(RepetitionPenalty(penalty)(flat(frontier), frontier), theirs)


@given(SENTENCES, st.floats(0.2, 5.0))
def test_the_repetition_penalty_as_plain_python_has_it(sentences: list[list[int]], penalty: float) -> None:
    frontier = said(sentences)
    log_probs = flat(frontier)
    ruled = RepetitionPenalty(penalty)(log_probs.clone(), frontier)
    for ids, row, before in zip(sentences, ruled, log_probs, strict=True):
        for token in range(VOCABULARY):
            factor = penalty if token in {BOS, *ids} else 1.0
            assert row[token].item() == pytest.approx(before[token].item() * factor)


def test_what_the_repetition_penalty_added_is_booked_beside_the_log_probability() -> None:
    """Behind a b, a has been said and counts for .9 ** 2, still more than eos .1: log .9 too little in all."""
    last = by_hand({**SHORT, B: {EOS: 0.1, A: 0.9}}, [RepetitionPenalty(2.0)], asked(limit=3))
    assert spoken(last) == [[A, B, A]]
    assert last.log_probability.item() == pytest.approx(math.log(0.6 * 0.7 * 0.9))
    assert last.penalty.item() == pytest.approx(math.log(0.9))


def test_rules_take_part_in_a_beam_as_they_do_alone() -> None:
    rules = [
        SuppressTokens(),
        MinLength(),
        BannedPhrases([[A, B]]),
        NoRepeatNgram(3),
        RepetitionPenalty(1.3),
        ForcedPrefix(),
    ]
    prefixes = [[A] if n % 3 else [] for n in range(7)]
    limits = [(5 * n) % 7 + 1 for n in range(7)]
    many = RowLimits.make(torch.tensor(limits), 2, prefixes)
    *_, together = search(Trees(), Said.nothing(*range(7)), many, Beam(3), rules)
    for n in range(7):
        one = RowLimits.make(torch.tensor(limits[n : n + 1]), 2, prefixes[n : n + 1])
        *_, last = search(Trees(), Said.nothing(n), one, Beam(3), rules)
        alone, among = last.hypotheses, together.hypotheses.select_sentences(torch.tensor([n]))
        assert spoken(alone) == spoken(among)
        assert torch.equal(alone.log_probability, among.log_probability)
        assert torch.equal(alone.penalty, among.penalty)
        for ids, told in zip(spoken(alone), alone.log_probability.tolist(), strict=True):
            assert told == NEG_INF or told == pytest.approx(log_probability(n, ids), abs=1e-5)


@pytest.mark.parametrize(
    "rule",
    [
        SuppressTokens(),
        MinLength(),
        ForcedPrefix(),
        BannedPhrases([[A, B], [UNK]]),
        NoRepeatNgram(3),
        RepetitionPenalty(1.5),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_no_rule_makes_the_host_wait(rule: Rule) -> None:
    frontier = said([[A, B], [], [A, A, B]])
    frontier = replace(
        frontier, limits=replace(frontier.limits, prefix=torch.tensor([[A, B, A], [A, PAD, PAD], [A] * 3]))
    )
    log_probs = flat(frontier)
    with Watch() as watch:
        rule(log_probs, frontier)
    assert watch.operations > 0
    assert not watch.caught


def test_what_makes_the_host_wait_would_be_caught() -> None:
    numbers = torch.arange(3)
    for waits in (lambda: numbers[1].item(), lambda: numbers[numbers > 1], lambda: torch.tensor([1, 2])):
        with Watch() as watch:
            waits()
        assert watch.caught


def test_rules_can_be_looked_up_by_what_they_say() -> None:
    assert len({BannedPhrases([[A, B]]), BannedPhrases(((A, B),)), BannedPhrases([[A]])}) == 2
    assert len({NoRepeatNgram(2), NoRepeatNgram(2), NoRepeatNgram(3)}) == 2


def test_rules_that_say_nothing_sensible_are_refused() -> None:
    with pytest.raises(UsageError, check=has_code("ngram_size_below_one", size=0)):
        NoRepeatNgram(0)
    with pytest.raises(UsageError, check=has_code("repetition_penalty_not_positive")):
        RepetitionPenalty(-1.0)
    with pytest.raises(UsageError, check=has_code("phrase_without_tokens")):
        BannedPhrases([[A], []])
    with pytest.raises(UsageError, check=has_code("phrase_with_control_tokens", kind="banned", ids=[A, EOS])):
        BannedPhrases([[A, EOS]])
