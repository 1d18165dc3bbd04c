"""Prefill of prefixes in one pass gives the same results as decoding them token by token."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from varied_network import Make, varied_network

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
    "wide beam": Beam(9),  # too many rows to share one cache
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
Results = dict[int, list[tuple[list[int], bool, bool, float, float]]]


def make_requests(source: bool, prefixes: Sequence[tuple[int, ...]] = PREFIXES) -> list[DecodeRequest]:
    return [
        DecodeRequest(n, (4 + n, 6, 7)[: 1 + n % 3] if source else (), len(prefix) + n % 4, n % 3, prefix)
        for n, prefix in enumerate(prefixes)
    ]


def collect_results(answers: Iterable[FinishedBatch]) -> Results:
    results: Results = {}
    for batch in answers:
        for request, each in batch.split():
            ids = [[token for token in row[1:] if token != PAD] for row in each.ids.tolist()]
            flags = (each.ended.tolist(), each.cut.tolist())
            numbers = (each.log_probability.tolist(), each.penalty.tolist())
            rows = list(zip(ids, *flags, *numbers, strict=True))
            results[request.request_id] = [row for row in rows if row[3] > -1e30]
    return results


def run_continuous_batch(
    network: Transformer,
    requests: Sequence[DecodeRequest],
    strategy: Strategy,
    rules: Sequence[Rule],
    max_sentences: int,
) -> Results:
    batch, waiting = (
        ContinuousBatch(ColumnMajorWeights(network), strategy, rules, max_sentences),
        deque[DecodeRequest](),
    )
    arriving, answers = deque(requests), list[FinishedBatch]()
    while waiting or arriving or batch.busy:
        answers.extend(batch.step(waiting))
        if arriving:
            waiting.append(arriving.popleft())
    return collect_results(answers)


def assert_same(results: Results, expected: Results) -> None:
    assert results.keys() == expected.keys()
    for number, rows in expected.items():
        assert [row[:3] for row in results[number]] == [row[:3] for row in rows]
        for ours, theirs in zip(results[number], rows, strict=True):
            assert ours[3:] == pytest.approx(theirs[3:], abs=1e-4)


def engines(network: Transformer) -> list[CachedEngine | FastEngine]:
    return [CachedEngine(network, 1000), FastEngine(network, 1000), CachedEngine(network, 99)]


@pytest.mark.short(3)
@pytest.mark.parametrize(("name", "rules", "source"), CASES)
def test_D1_every_engine_equals_the_textbook_engine(small_network: Make, name: str, rules: str, source: bool) -> None:
    network = varied_network(small_network, num_encoder_layers=2 if source else 0)
    strategy, requests = STRATEGIES[name], make_requests(source)
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, strategy, RULES[rules]))
    assert len({tuple(rows[0][0][-3:]) for rows in expected.values()}) > 3
    for engine in engines(network):
        assert_same(collect_results(engine.generate(requests, strategy, RULES[rules])), expected)
    if strategy.width <= 4:
        assert_same(run_continuous_batch(network, requests, strategy, RULES[rules], max_sentences=3), expected)


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        (Greedy(), {"positions": "learned", "max_length": 10}),
        (Beam(2), {"positions": "learned", "max_length": 10}),
        (Greedy(), {"positions": "rotary"}),
        (Beam(2), {"positions": "relative"}),
    ],
)
@pytest.mark.parametrize("on_host", [True, False], ids=["host reads", "host does not read"])
def test_D2_positions_equal_those_of_single_steps(
    small_network: Make, strategy: Strategy, changes: dict[str, Any], on_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest prefix uses all learned positions, while the padded prefix is longer.

    On a GPU the host cannot read the prefix lengths.
    """
    monkeypatch.setattr("attendo.decode.prefill.is_on_host", lambda numbers: on_host)
    network = varied_network(small_network, num_encoder_layers=0, **changes)
    requests = [
        DecodeRequest(0, (), 9, prefix=(*LONG, 5)),
        DecodeRequest(1, (), 9),
        DecodeRequest(2, (), 7, prefix=(6, 8)),
    ]
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, strategy, PLAIN))
    for engine in engines(network):
        assert_same(collect_results(engine.generate(requests, strategy, PLAIN)), expected)
    assert_same(run_continuous_batch(network, requests, strategy, PLAIN, max_sentences=4), expected)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=["greedy", "beam"])
def test_a_long_prefix_joins_a_running_batch(small_network: Make, strategy: Strategy) -> None:
    """The prefix has more positions than the running batch."""
    network, rules = varied_network(small_network, num_encoder_layers=0), (*PLAIN, SuppressTokens((EOS,)))
    requests = [DecodeRequest(0, (), 8, prefix=(5,)), DecodeRequest(1, (), 8), DecodeRequest(2, (), 9, prefix=LONG)]
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, strategy, rules))
    assert_same(run_continuous_batch(network, requests, strategy, rules, max_sentences=3), expected)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_prefixes_that_end_the_row_are_respected(small_network: Make, strategy: Strategy) -> None:
    """Prefixes longer than the limit, with EOS inside, or with a token of probability 0."""
    network = varied_network(small_network, num_encoder_layers=0, output_bias=True)
    with torch.no_grad():
        network.output.bias[9] = float("-inf")
    prefixes = [(5, 6, 7, 8), (5, EOS, 7), (5, 6, 9, 7), (5, 6, 7), (EOS,), (9,)]
    requests = [DecodeRequest(n, (), 2 if n == 0 else 6, prefix=prefix) for n, prefix in enumerate(prefixes)]
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, strategy, PLAIN))
    assert {row[1] for rows in expected.values() for row in rows} == {True, False}
    for engine in engines(network):
        assert_same(collect_results(engine.generate(requests, strategy, PLAIN)), expected)
    assert_same(run_continuous_batch(network, requests, strategy, PLAIN, max_sentences=4), expected)


@pytest.fixture
def step_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the target ids in all calls of `Transformer.step`."""
    shapes: list[tuple[int, ...]] = []
    step: Callable[..., object] = Transformer.step

    def record_shape(self: Transformer, ids: torch.Tensor, *others: object, **keywords: object) -> object:
        shapes.append(tuple(ids.shape))
        return step(self, ids, *others, **keywords)

    monkeypatch.setattr(Transformer, "step", record_shape)
    return shapes


@pytest.mark.parametrize("source", [True, False], ids=["with a source", "decoder-only"])
def test_a_prefix_is_read_in_one_call(small_network: Make, step_shapes: list[tuple[int, ...]], source: bool) -> None:
    network = varied_network(small_network, num_encoder_layers=2 if source else 0)
    rules = (*PLAIN, SuppressTokens((EOS,)))
    requests = [DecodeRequest(n, (5,) if source else (), 9, prefix=LONG[: 7 - n]) for n in range(3)]
    batched = [(3, 7), *[(3, 1)] * 3]
    collect_results(CachedEngine(network, 1000).generate(requests, Greedy(), rules))
    assert step_shapes[:-2] == batched  # closed rows are removed from the last two calls
    step_shapes.clear()
    run_continuous_batch(network, requests, Greedy(), rules, max_sentences=3)
    assert step_shapes[:2] == [(1, 7), (1, 1)]
    assert len(step_shapes) == 3 + 7
    step_shapes.clear()
    collect_results(FastEngine(network, 1000).generate(requests, Greedy(), rules))
    assert step_shapes == [(3, 7), *[(4, 1)] * 5]
    step_shapes.clear()
    collect_results(
        CachedEngine(Ensemble([network]), 1000).generate(requests, Greedy(), rules)
    )  # all rows at the same position
    assert step_shapes[0] == (3, 5)
    assert len(step_shapes) == 1 + 5


def test_a_large_prefill_is_split(
    small_network: Make, step_shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, requests = varied_network(small_network, num_encoder_layers=0), make_requests(False)
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, Beam(3), RULES["of logits"]))
    monkeypatch.setattr("attendo.decode.prefill._MAX_LOGITS", 3 * 5 * 17)
    step_shapes.clear()
    assert_same(collect_results(CachedEngine(network, 1000).generate(requests, Beam(3), RULES["of logits"])), expected)
    assert step_shapes[:3] == [(5, 3), (5, 3), (5, 1)]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_an_ensemble_prefills_its_prefixes(
    small_network: Make, step_shapes: list[tuple[int, ...]], strategy: Strategy
) -> None:
    networks = [varied_network(small_network, num_encoder_layers=0, seed=seed) for seed in (0, 1)]
    pair, requests = Ensemble(networks, weights=[1.0, 2.0]), make_requests(False)
    one_by_one = collect_results(
        each for request in requests for each in CachedEngine(pair, 99).generate([request], strategy, PLAIN)
    )
    assert max(width for _, width in step_shapes) == len(LONG)
    assert_same(collect_results(FastEngine(pair, 1000).generate(requests, strategy, PLAIN)), one_by_one)
    step_shapes.clear()
    recorded = collect_results(CachedEngine(pair, 1000).generate(requests, TreeRecorder(strategy), PLAIN))
    assert {width for _, width in step_shapes} == {1}
    assert_same(one_by_one, recorded)


def test_constraint_phrases_may_begin_in_the_prefix(small_network: Make) -> None:
    network = varied_network(small_network)
    requests = [DecodeRequest(n, (5, 6), 12, prefix=LONG[: 2 + n]) for n in range(3)]
    strategy = ConstrainedBeam(4, constraints={0: ((6, 15),), 1: ((16,),), 2: ((8, 9),)})
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, strategy, PLAIN))
    assert_same(collect_results(CachedEngine(network, 1000).generate(requests, strategy, PLAIN)), expected)


def test_recorder_and_coverage_run_every_step_of_the_prefix(
    small_network: Make, step_shapes: list[tuple[int, ...]]
) -> None:
    """A recorded tree contains the steps of the prefix. Coverage needs the attention of its tokens."""
    network, requests = varied_network(small_network), make_requests(True)[1:2]
    recorder = TreeRecorder(Beam(2))
    collect_results(CachedEngine(network, 1000).generate(requests, recorder, PLAIN))
    (tree,) = recorder.trees
    chosen = [node.id for node in tree.nodes if node.fate == "goes on" and node.step <= len(LONG)]
    assert chosen == [*LONG]
    assert {width for _, width in step_shapes} == {1}
    step_shapes.clear()
    strategy = Beam(2, Ranking(coverage_penalty=0.5))
    covering: Seq2SeqNetwork = CoverageNetwork(network)
    collect_results(CachedEngine(covering, 1000).generate(requests, strategy, PLAIN))
    assert {width for _, width in step_shapes} == {1}


def test_prefix_width_may_exceed_the_capacity(small_network: Make) -> None:
    """In the server, capacity and prefix width are rounded up independently."""
    network, requests = varied_network(small_network, num_encoder_layers=0), make_requests(False)
    expected = collect_results(TextbookEngine(network, 1000).generate(requests, Beam(2), PLAIN))
    static_batch = StaticBatch(network, Beam(2), PLAIN, BatchShape(3, 4, capacity=12, prefix_width=64))
    assert_same(collect_results(static_batch.generate(requests)), expected)
