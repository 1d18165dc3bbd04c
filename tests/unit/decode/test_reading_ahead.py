"""Prefixes that are read in one pass: the answers, and all that is told of them, as if they had come token by token."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from lively_network import Make, lively

from attendo.decode.beam import Beam
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.continuous_batch import ColumnMajorWeights, ContinuousBatch
from attendo.decode.coverage import CoverageNetwork
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.engines import CachedEngine, FastEngine, TextbookEngine
from attendo.decode.networks import Ensemble
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.rules import (
    ForcedPrefix,
    MinLength,
    NoRepeatNgram,
    Renormalise,
    RepetitionPenalty,
    SuppressTokens,
    UnscoredPrefix,
)
from attendo.decode.search import Rule, Seq2SeqNetwork, Strategy
from attendo.decode.static_batch import BatchShape, StaticBatch
from attendo.decode.strategies import Greedy, Sampling
from attendo.decode.tree_recorder import TreeRecorder
from attendo.model.transformer import Transformer
from attendo.text import EOS, PAD

PLAIN: tuple[Rule, ...] = (SuppressTokens(), MinLength(), ForcedPrefix())
RULES: dict[str, tuple[Rule, ...]] = {
    "plain": PLAIN,
    "no repetition": (RepetitionPenalty(1.3), SuppressTokens(), NoRepeatNgram(2), ForcedPrefix(), UnscoredPrefix(2)),
    "of logits": (RepetitionPenalty(1.3, applies_to_logits=True), SuppressTokens(), ForcedPrefix(), Renormalise()),
}
STRATEGIES: dict[str, Strategy] = {
    "greedy": Greedy(),
    "free end": Greedy(free_end=True),
    "samples": Sampling(3, seed=2),
    "beam": Beam(3),
    "wide beam": Beam(9),  # too many rows to share a storage
    "groups": DiverseBeam(4, 2),
}
# Every strategy, each rule with one row and with several, with a source and without.
CASES = [
    ("greedy", "plain", False),
    ("greedy", "of logits", True),
    ("greedy", "no repetition", False),
    ("free end", "plain", True),
    ("samples", "no repetition", False),
    ("samples", "plain", True),
    ("beam", "of logits", False),
    ("beam", "no repetition", True),
    ("wide beam", "of logits", False),
    ("groups", "plain", False),
]
LONG = (5, 6, 7, 8, 5, 6, 13)
PREFIXES = [(), LONG, (7,), LONG[:4], LONG[::-1]]
Told = dict[int, list[tuple[list[int], bool, bool, float, float]]]


def requests(source: bool, prefixes: Sequence[tuple[int, ...]] = PREFIXES) -> list[DecodeRequest]:
    return [
        DecodeRequest(n, (4 + n, 6, 7)[: 1 + n % 3] if source else (), len(prefix) + n % 4, n % 3, prefix)
        for n, prefix in enumerate(prefixes)
    ]


def told(answers: Iterable[FinishedBatch]) -> Told:
    found: Told = {}
    for some in answers:
        for request, each in some.split():
            ids = [[token for token in row[1:] if token != PAD] for row in each.ids.tolist()]
            flags = (each.ended.tolist(), each.cut.tolist())
            numbers = (each.log_probability.tolist(), each.penalty.tolist())
            rows = list(zip(ids, *flags, *numbers, strict=True))
            found[request.request_id] = [row for row in rows if row[3] > -1e30]
    return found


def by_a_crowd(
    network: Transformer, asked: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule], most: int
) -> Told:
    crowd, waiting = ContinuousBatch(ColumnMajorWeights(network), strategy, rules, most), deque[DecodeRequest]()
    coming, answers = deque(asked), list[FinishedBatch]()
    while waiting or coming or crowd.busy:
        answers.extend(crowd.step(waiting))
        if coming:
            waiting.append(coming.popleft())
    return told(answers)


def same(found: Told, expected: Told) -> None:
    assert found.keys() == expected.keys()
    for number, rows in expected.items():
        assert [row[:3] for row in found[number]] == [row[:3] for row in rows]
        for ours, theirs in zip(found[number], rows, strict=True):
            assert ours[3:] == pytest.approx(theirs[3:], abs=1e-4)


def engines(network: Transformer) -> list[CachedEngine | FastEngine]:
    return [CachedEngine(network, 1000), FastEngine(network, 1000), CachedEngine(network, 99)]


@pytest.mark.short(3)
@pytest.mark.parametrize(("name", "rules", "source"), CASES)
def test_D1_every_engine_answers_as_the_textbook_does(small_network: Make, name: str, rules: str, source: bool) -> None:
    network = lively(small_network, num_encoder_layers=2 if source else 0)
    strategy, asked = STRATEGIES[name], requests(source)
    expected = told(TextbookEngine(network, 1000).generate(asked, strategy, RULES[rules]))
    assert len({tuple(rows[0][0][-3:]) for rows in expected.values()}) > 3
    for engine in engines(network):
        same(told(engine.generate(asked, strategy, RULES[rules])), expected)
    if strategy.width <= 4:
        same(by_a_crowd(network, asked, strategy, RULES[rules], most=3), expected)


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        (Greedy(), {"positions": "learned", "max_length": 10}),
        (Beam(2), {"positions": "learned", "max_length": 10}),
        (Greedy(), {"positions": "rotary"}),
    ],
)
@pytest.mark.parametrize("seen", [True, False], ids=["the host looks", "the host does not look"])
def test_D2_positions_are_those_of_single_steps(
    small_network: Make, strategy: Strategy, changes: dict[str, Any], seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix is as long as there are learned positions; what is made room for beside it is more.

    On a GPU the host cannot look how long the prefixes are.
    """
    monkeypatch.setattr("attendo.decode.prefill.is_on_host", lambda numbers: seen)
    network = lively(small_network, num_encoder_layers=0, **changes)
    asked = [
        DecodeRequest(0, (), 9, prefix=(*LONG, 5)),
        DecodeRequest(1, (), 9),
        DecodeRequest(2, (), 7, prefix=(6, 8)),
    ]
    expected = told(TextbookEngine(network, 1000).generate(asked, strategy, PLAIN))
    for engine in engines(network):
        same(told(engine.generate(asked, strategy, PLAIN)), expected)
    same(by_a_crowd(network, asked, strategy, PLAIN, most=4), expected)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=["greedy", "beam"])
def test_a_long_prefix_joins_those_that_have_just_begun(small_network: Make, strategy: Strategy) -> None:
    """It has more positions than there were before."""
    network, rules = lively(small_network, num_encoder_layers=0), (*PLAIN, SuppressTokens((EOS,)))
    asked = [DecodeRequest(0, (), 8, prefix=(5,)), DecodeRequest(1, (), 8), DecodeRequest(2, (), 9, prefix=LONG)]
    expected = told(TextbookEngine(network, 1000).generate(asked, strategy, rules))
    same(by_a_crowd(network, asked, strategy, rules, most=3), expected)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_prefixes_that_lead_to_an_end_are_kept_to(small_network: Make, strategy: Strategy) -> None:
    """Longer than the limit, with an end inside, or with what can never be said."""
    network = lively(small_network, num_encoder_layers=0, output_bias=True)
    with torch.no_grad():
        network.output.bias[9] = float("-inf")
    prefixes = [(5, 6, 7, 8), (5, EOS, 7), (5, 6, 9, 7), (5, 6, 7), (EOS,), (9,)]
    asked = [DecodeRequest(n, (), 2 if n == 0 else 6, prefix=prefix) for n, prefix in enumerate(prefixes)]
    expected = told(TextbookEngine(network, 1000).generate(asked, strategy, PLAIN))
    assert {row[1] for rows in expected.values() for row in rows} == {True, False}
    for engine in engines(network):
        same(told(engine.generate(asked, strategy, PLAIN)), expected)
    same(by_a_crowd(network, asked, strategy, PLAIN, most=4), expected)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The ids that networks read of targets, by their shape."""
    seen: list[tuple[int, ...]] = []
    step: Callable[..., object] = Transformer.step

    def counted(self: Transformer, ids: torch.Tensor, *others: object, **named: object) -> object:
        seen.append(tuple(ids.shape))
        return step(self, ids, *others, **named)

    monkeypatch.setattr(Transformer, "step", counted)
    return seen


@pytest.mark.parametrize("source", [True, False], ids=["with a source", "decoder-only"])
def test_a_prefix_is_read_in_one_call(small_network: Make, calls: list[tuple[int, ...]], source: bool) -> None:
    network = lively(small_network, num_encoder_layers=2 if source else 0)
    rules = (*PLAIN, SuppressTokens((EOS,)))
    asked = [DecodeRequest(n, (5,) if source else (), 9, prefix=LONG[: 7 - n]) for n in range(3)]
    together = [(3, 7), *[(3, 1)] * 3]
    told(CachedEngine(network, 1000).generate(asked, Greedy(), rules))
    assert calls[:-2] == together  # of the rows that are closed some leave
    calls.clear()
    by_a_crowd(network, asked, Greedy(), rules, most=3)
    assert calls[:2] == [(1, 7), (1, 1)]
    assert len(calls) == 3 + 7
    calls.clear()
    told(FastEngine(network, 1000).generate(asked, Greedy(), rules))
    assert calls == [(3, 7), *[(4, 1)] * 5]
    calls.clear()
    told(CachedEngine(Ensemble([network]), 1000).generate(asked, Greedy(), rules))  # all rows at the same place
    assert calls[0] == (3, 5)
    assert len(calls) == 1 + 5


def test_much_is_read_in_parts(
    small_network: Make, calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, asked = lively(small_network, num_encoder_layers=0), requests(False)
    expected = told(TextbookEngine(network, 1000).generate(asked, Beam(3), RULES["of logits"]))
    monkeypatch.setattr("attendo.decode.prefill._MAX_LOGITS", 3 * 5 * 17)
    calls.clear()
    same(told(CachedEngine(network, 1000).generate(asked, Beam(3), RULES["of logits"])), expected)
    assert calls[:3] == [(5, 3), (5, 3), (5, 1)]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_an_ensemble_reads_as_one(small_network: Make, calls: list[tuple[int, ...]], strategy: Strategy) -> None:
    networks = [lively(small_network, num_encoder_layers=0, seed=seed) for seed in (0, 1)]
    pair, asked = Ensemble(networks, weights=[1.0, 2.0]), requests(False)
    one_by_one = told(each for request in asked for each in CachedEngine(pair, 99).generate([request], strategy, PLAIN))
    assert max(width for _, width in calls) == len(LONG)
    same(told(FastEngine(pair, 1000).generate(asked, strategy, PLAIN)), one_by_one)
    calls.clear()
    recorded = told(CachedEngine(pair, 1000).generate(asked, TreeRecorder(strategy), PLAIN))
    assert {width for _, width in calls} == {1}
    same(one_by_one, recorded)


def test_phrases_may_begin_in_what_was_read(small_network: Make) -> None:
    network = lively(small_network)
    asked = [DecodeRequest(n, (5, 6), 12, prefix=LONG[: 2 + n]) for n in range(3)]
    strategy = ConstrainedBeam(4, constraints={0: ((6, 15),), 1: ((16,),), 2: ((8, 9),)})
    expected = told(TextbookEngine(network, 1000).generate(asked, strategy, PLAIN))
    same(told(CachedEngine(network, 1000).generate(asked, strategy, PLAIN)), expected)


def test_whoever_must_see_each_step_sees_it(small_network: Make, calls: list[tuple[int, ...]]) -> None:
    """The tree of a search has the steps of the prefix, and coverage the attention of its tokens."""
    network, asked = lively(small_network), requests(True)[1:2]
    recorder = TreeRecorder(Beam(2))
    told(CachedEngine(network, 1000).generate(asked, recorder, PLAIN))
    (tree,) = recorder.trees
    chosen = [node.id for node in tree.nodes if node.fate == "goes on" and node.step <= len(LONG)]
    assert chosen == [*LONG]
    assert {width for _, width in calls} == {1}
    calls.clear()
    strategy = Beam(2, Ranking(coverage_penalty=0.5))
    covering: Seq2SeqNetwork = CoverageNetwork(network)
    told(CachedEngine(covering, 1000).generate(asked, strategy, PLAIN))
    assert {width for _, width in calls} == {1}


def test_slots_whose_answers_are_short_have_room_for_prefixes_that_are_not(small_network: Make) -> None:
    """As in a server, where both are rounded up by themselves."""
    network, asked = lively(small_network, num_encoder_layers=0), requests(False)
    expected = told(TextbookEngine(network, 1000).generate(asked, Beam(2), PLAIN))
    slots = StaticBatch(network, Beam(2), PLAIN, BatchShape(3, 4, capacity=12, prefix_width=64))
    same(told(slots.generate(asked)), expected)
