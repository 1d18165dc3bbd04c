"""Rules compared with hand-computed bigram tables, with plain Python on any row, and with transformers."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st
from search_rows import make_limits
from sync_detector import SyncDetector
from torch import Tensor
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

WORD = st.sampled_from(TEXT_TOKENS)
SENTENCES = st.lists(st.lists(WORD, max_size=7), min_size=1, max_size=4)
PHRASES = st.lists(st.lists(WORD, min_size=1, max_size=4), min_size=1, max_size=5)


def search_table(
    table: BigramTable, rules: Sequence[Rule], row_limits: RowLimits, strategy: Strategy | None = None
) -> Frontier:
    *_, last = search(
        Bigrams(table), BigramState(torch.arange(1)), row_limits, strategy or Greedy(), [SuppressTokens(), *rules]
    )
    return last.hypotheses


def row_limits(limit: int = 9, min_length: int = 0, prefix: Sequence[int] = ()) -> RowLimits:
    return make_limits(torch.tensor([limit]), min_length, [prefix])


def make_frontier(sentences: list[list[int]], spare: int = 2) -> Frontier:
    """A frontier with these tokens in its rows, and spare columns."""
    capacity = max(map(len, sentences)) + 1 + spare
    rows = [[BOS, *each, *[PAD] * (capacity - 1 - len(each))] for each in sentences]
    start = Frontier.start(make_limits(torch.full((len(rows),), capacity - 2)), capacity=capacity)
    return replace(start, ids=torch.tensor(rows), length=torch.tensor([len(each) for each in sentences]))


def random_log_probs(frontier: Frontier) -> Tensor:
    return torch.randn(frontier.length.size(0), VOCABULARY, generator=torch.Generator().manual_seed(1)).log_softmax(-1)


def forbidden_tokens(rule: Rule, frontier: Frontier) -> list[set[int]]:
    """The forbidden tokens of each row; all other scores must be unchanged."""
    before = random_log_probs(frontier)
    ruled = rule(before.clone(), frontier)
    assert torch.equal(torch.where(ruled == NEG_INF, before, ruled), before)
    return [{token for token in range(VOCABULARY) if row[token] == NEG_INF} for row in ruled]


def token_ids(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


def contains(ids: Sequence[int], phrase: Sequence[int]) -> bool:
    return any([*ids[n : n + len(phrase)]] == [*phrase] for n in range(len(ids)))


@pytest.mark.parametrize(
    ("min_length", "ids", "probability"),
    [
        (0, [A, B, EOS], 0.6 * 0.7 * 0.5),
        (2, [A, B, EOS], 0.6 * 0.7 * 0.5),
        (3, [A, B, A, B, EOS], 0.6 * 0.7 * 0.4 * 0.7 * 0.5),  # b is the best token after a b a anyway
    ],
)
def test_no_eos_before_the_minimum_length(min_length: int, ids: list[int], probability: float) -> None:
    last = search_table(SHORT, [MinLength()], row_limits(min_length=min_length))
    assert token_ids(last) == [ids]
    assert last.log_probability.item() == pytest.approx(math.log(probability))
    assert last.penalty.item() == 0


def test_each_row_has_its_own_minimum_length() -> None:
    frontier = make_frontier([[], [A], [A, B], [A, B, A]])
    frontier = replace(frontier, limits=replace(frontier.limits, min_length=torch.tensor([1, 1, 3, 3])))
    assert forbidden_tokens(MinLength(), frontier) == [{EOS}, set(), {EOS}, set()]


def test_a_minimum_length_above_the_limit_cuts_the_answer() -> None:
    last = search_table(SHORT, [MinLength()], row_limits(limit=2, min_length=5))
    assert token_ids(last) == [[A, B]]
    assert last.cut.item()


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2), Sampling(2)], ids=["greedy", "beam", "sample"])
def test_an_answer_starts_with_its_prefix_and_keeps_log_probability(strategy: Strategy) -> None:
    last = search_table(SHORT, [ForcedPrefix()], row_limits(prefix=[B, A]), strategy)
    assert all(ids[:2] == [B, A] for ids in token_ids(last))
    assert (last.penalty == 0).all()
    best = last.log_probability.max().item()
    assert best <= math.log(0.3 * 0.4 * 0.7 * 0.5) + 1e-6
    if isinstance(strategy, Greedy):
        assert token_ids(last) == [[B, A, B, EOS]]
        assert best == pytest.approx(math.log(0.3 * 0.4 * 0.7 * 0.5))


def test_sentences_have_prefixes_of_different_lengths() -> None:
    prefixes = [[], [B], [UNK, A, A], [A, B]]
    limits_of_all = make_limits(torch.tensor([5] * 4), prefix=prefixes)
    rules = [SuppressTokens(), ForcedPrefix()]
    *_, last = search(Trees(), TreeState.start(0, 1, 2, 3), limits_of_all, Beam(3), rules)
    for n, prefix in enumerate(prefixes):
        *_, alone = search(Trees(), TreeState.start(n), make_limits(torch.tensor([5]), prefix=[prefix]), Beam(3), rules)
        rows = last.hypotheses.select_sentences(torch.tensor([n]))
        assert token_ids(rows) == token_ids(alone.hypotheses)
        assert torch.equal(rows.log_probability, alone.hypotheses.log_probability)
        for ids, reported in zip(token_ids(rows), rows.log_probability.tolist(), strict=True):
            assert ids[: len(prefix)] == prefix
            assert reported == pytest.approx(log_probability(n, ids), abs=1e-5)


def test_a_prefix_longer_than_the_limit_is_cut() -> None:
    last = search_table(SHORT, [ForcedPrefix()], row_limits(limit=2, prefix=[B, A, B]))
    assert token_ids(last) == [[B, A]]
    assert last.cut.item()


def test_no_other_rule_applies_to_the_prefix() -> None:
    rules = [
        SuppressTokens((A,)),
        BannedPhrases([[A, A]]),
        NoRepeatNgram(1),
        RepetitionPenalty(3.0),
        MinLength(),
        ForcedPrefix(),
    ]
    last = search_table(SHORT, rules, row_limits(prefix=[A, A, A], min_length=2))
    assert token_ids(last)[0][:3] == [A, A, A]
    assert last.log_probability.item() == pytest.approx(math.log(0.6 * 0.1 * 0.1 * 0.7 * 0.5))  # then b and EOS
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
    assert token_ids(search_table(SHORT, [BannedPhrases(phrases)], row_limits())) == [ids]


@given(SENTENCES, PHRASES)
def test_banned_phrases_equal_plain_python(sentences: list[list[int]], phrases: list[list[int]]) -> None:
    expected = [
        {phrase[-1] for phrase in phrases if [*([None] * 9), *ids][len(ids) + 10 - len(phrase) :] == phrase[:-1]}
        for ids in sentences
    ]
    assert forbidden_tokens(BannedPhrases(phrases), make_frontier(sentences)) == expected
    for ids, alone in zip(sentences, expected, strict=True):
        assert forbidden_tokens(BannedPhrases(phrases), make_frontier([ids], spare=0)) == [alone]


def test_no_banned_phrase_changes_nothing() -> None:
    assert forbidden_tokens(BannedPhrases(()), make_frontier([[A], []])) == [set(), set()]


def test_no_hypothesis_of_a_beam_contains_a_banned_phrase() -> None:
    phrases = [[A, A], [UNK], [B, A, B]]
    rules = [SuppressTokens(), BannedPhrases(phrases)]
    *_, last = search(Trees(), TreeState.start(*range(12)), make_limits(torch.tensor([6] * 12)), Beam(4), rules)
    rows = token_ids(last.hypotheses)
    assert sum(map(len, rows)) > 60
    assert not any(contains(ids, phrase) for ids in rows for phrase in phrases)


@given(SENTENCES, st.integers(1, 5))
def test_no_repeat_ngram_equals_plain_python(sentences: list[list[int]], size: int) -> None:
    expected = []
    for ids in sentences:
        with_bos = [BOS, *ids]
        ngrams = {tuple(with_bos[n : n + size]) for n in range(len(with_bos) - size + 1)}
        tail = tuple(with_bos[len(with_bos) - size + 1 :]) if len(with_bos) >= size - 1 else None
        expected.append({ngram[-1] for ngram in ngrams if ngram[:-1] == tail})
    assert forbidden_tokens(NoRepeatNgram(size), make_frontier(sentences)) == expected
    for ids, alone in zip(sentences, expected, strict=True):
        assert forbidden_tokens(NoRepeatNgram(size), make_frontier([ids], spare=0)) == [alone]


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 5))
def test_no_repeat_ngram_equals_transformers(seed: int, length: int, size: int) -> None:
    transformers = pytest.importorskip("transformers")
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor(TEXT_TOKENS)[torch.randint(len(TEXT_TOKENS), (5, length), generator=generator)]
    frontier = make_frontier(ids.tolist())
    theirs = transformers.NoRepeatNGramLogitsProcessor(size)(frontier.ids[:, : length + 1], random_log_probs(frontier))
    assert torch.equal(NoRepeatNgram(size)(random_log_probs(frontier), frontier), theirs)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_hypothesis_of_a_beam_repeats_an_ngram(size: int) -> None:
    rules = [SuppressTokens(), NoRepeatNgram(size)]
    *_, last = search(Trees(), TreeState.start(*range(12)), make_limits(torch.tensor([7] * 12)), Beam(4), rules)
    longest = 0
    for ids in token_ids(last.hypotheses):
        ngrams = [tuple(ids[n : n + size]) for n in range(len(ids) - size + 1)]
        assert len(ngrams) == len({*ngrams})
        longest = max(longest, len(ngrams))
    assert longest > 2


@given(st.integers(0, 2**32), st.integers(0, 9), st.sampled_from([0.5, 1.0, 1.2, 2.0]))
def test_the_repetition_penalty_equals_transformers(seed: int, length: int, penalty: float) -> None:
    transformers = pytest.importorskip("transformers")
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor(TEXT_TOKENS)[torch.randint(len(TEXT_TOKENS), (5, length), generator=generator)]
    frontier = make_frontier(ids.tolist())
    theirs = transformers.RepetitionPenaltyLogitsProcessor(penalty)(
        frontier.ids[:, : length + 1], random_log_probs(frontier)
    )
    assert torch.equal(RepetitionPenalty(penalty)(random_log_probs(frontier), frontier), theirs)


@given(SENTENCES, st.floats(0.2, 5.0))
def test_the_repetition_penalty_equals_plain_python(sentences: list[list[int]], penalty: float) -> None:
    frontier = make_frontier(sentences)
    log_probs = random_log_probs(frontier)
    ruled = RepetitionPenalty(penalty)(log_probs.clone(), frontier)
    for ids, row, before in zip(sentences, ruled, log_probs, strict=True):
        for token in range(VOCABULARY):
            factor = penalty if token in {BOS, *ids} else 1.0
            assert row[token].item() == pytest.approx(before[token].item() * factor)


def test_the_repetition_penalty_is_stored_apart_from_log_probability() -> None:
    """After a b, a is a repetition and counts as .9 ** 2, still more than eos .1. The penalty is log .9."""
    last = search_table({**SHORT, B: {EOS: 0.1, A: 0.9}}, [RepetitionPenalty(2.0)], row_limits(limit=3))
    assert token_ids(last) == [[A, B, A]]
    assert last.log_probability.item() == pytest.approx(math.log(0.6 * 0.7 * 0.9))
    assert last.penalty.item() == pytest.approx(math.log(0.9))


def test_rules_give_the_same_beam_alone_and_in_a_batch() -> None:
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
    limits_of_all = make_limits(torch.tensor(limits), 2, prefixes)
    *_, together = search(Trees(), TreeState.start(*range(7)), limits_of_all, Beam(3), rules)
    for n in range(7):
        one = make_limits(torch.tensor(limits[n : n + 1]), 2, prefixes[n : n + 1])
        *_, last = search(Trees(), TreeState.start(n), one, Beam(3), rules)
        alone, among = last.hypotheses, together.hypotheses.select_sentences(torch.tensor([n]))
        assert token_ids(alone) == token_ids(among)
        assert torch.equal(alone.log_probability, among.log_probability)
        assert torch.equal(alone.penalty, among.penalty)
        for ids, reported in zip(token_ids(alone), alone.log_probability.tolist(), strict=True):
            assert reported == NEG_INF or reported == pytest.approx(log_probability(n, ids), abs=1e-5)


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
def test_no_rule_synchronises_the_host(rule: Rule) -> None:
    frontier = make_frontier([[A, B], [], [A, A, B]])
    frontier = replace(
        frontier, limits=replace(frontier.limits, prefix=torch.tensor([[A, B, A], [A, PAD, PAD], [A] * 3]))
    )
    log_probs = random_log_probs(frontier)
    with SyncDetector() as detector:
        rule(log_probs, frontier)
    assert detector.operations > 0
    assert not detector.caught


def test_synchronising_operations_are_detected() -> None:
    numbers = torch.arange(3)
    for operation in (lambda: numbers[1].item(), lambda: numbers[numbers > 1], lambda: torch.tensor([1, 2])):
        with SyncDetector() as detector:
            operation()
        assert detector.caught


def test_equal_rules_have_equal_hashes() -> None:
    assert len({BannedPhrases([[A, B]]), BannedPhrases(((A, B),)), BannedPhrases([[A]])}) == 2
    assert len({NoRepeatNgram(2), NoRepeatNgram(2), NoRepeatNgram(3)}) == 2


def test_rules_with_invalid_arguments_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("ngram_size_below_one", size=0)):
        NoRepeatNgram(0)
    with pytest.raises(UsageError, check=has_code("repetition_penalty_not_positive")):
        RepetitionPenalty(-1.0)
    with pytest.raises(UsageError, check=has_code("phrase_without_tokens")):
        BannedPhrases([[A], []])
    with pytest.raises(UsageError, check=has_code("phrase_with_control_tokens", kind="banned", ids=[A, EOS])):
        BannedPhrases([[A, EOS]])
