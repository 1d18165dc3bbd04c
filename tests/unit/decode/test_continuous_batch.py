"""Continuous batching on the CPU: each sentence gets the answer it gets alone."""

from collections import deque

import pytest
import torch
from varied_network import NETWORKS, Make, random_requests, varied_network

from attendo.decode.beam import Beam
from attendo.decode.continuous_batch import ColumnMajorWeights, ContinuousBatch
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.engines import CachedEngine
from attendo.decode.frontier import Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, SuppressTokens
from attendo.decode.search import Rule, Strategy
from attendo.decode.strategies import Greedy, Sampling
from attendo.model.transformer import Transformer
from attendo.text import EOS, PAD

RULES = [SuppressTokens()]
STRATEGIES: dict[str, Strategy] = {
    "greedy": Greedy(),
    "beam": Beam(3),
    "first": Beam(4, Ranking("gnmt", 0.6), "first", patience=1.5),
    "diverse": DiverseBeam(4, 2),
    "samples": Sampling(3, seed=5),
}

Rows = list[tuple[list[int], bool, bool]]


def hypothesis_rows(frontier: Frontier) -> Rows:
    rows = [[each for each in row[1:] if each != PAD] for row in frontier.ids.tolist()]
    return list(zip(rows, frontier.ended.tolist(), frontier.cut.tolist(), strict=True))


def decode_one_by_one(network: Transformer, strategy: Strategy, requests: list[DecodeRequest]) -> dict[int, Rows]:
    engine = CachedEngine(network, 1000)
    results = [each for request in requests for each in engine.generate([request], strategy, RULES)]
    return {each.requests[0].request_id: hypothesis_rows(each.hypotheses) for each in results}


def run_batch(batch: ContinuousBatch, waiting: "deque[DecodeRequest]") -> dict[int, Rows]:
    results: dict[int, Rows] = {}
    while waiting or batch.busy:
        for finished in batch.step(waiting):
            results |= {request.request_id: hypothesis_rows(hypotheses) for request, hypotheses in finished.split()}
    return results


@pytest.mark.short(2)
@pytest.mark.parametrize("name", STRATEGIES)
def test_D1_a_continuous_batch_gives_the_answers_of_each_sentence_alone(small_network: Make, name: str) -> None:
    network, strategy, requests = varied_network(small_network), STRATEGIES[name], random_requests(8, range(8))
    expected = decode_one_by_one(network, strategy, requests)
    for max_sentences in (3, 8):
        assert (
            run_batch(ContinuousBatch(ColumnMajorWeights(network), strategy, RULES, max_sentences), deque(requests))
            == expected
        )


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("positions", "strategy"),
    [
        ("sinusoidal", Greedy()),
        ("sinusoidal", Beam(3)),
        ("learned", Beam(2)),
        ("rotary", Greedy()),
        ("relative", Greedy()),
        ("relative", Beam(3)),
        ("none", Beam(2)),
    ],
    ids=lambda each: each if isinstance(each, str) else f"{each.width} rows",
)
@pytest.mark.parametrize("kind", NETWORKS)
def test_D2_sentences_may_join_and_leave_at_any_step(
    small_network: Make, kind: str, positions: str, strategy: Strategy
) -> None:
    network = varied_network(small_network, positions=positions, **NETWORKS[kind])
    requests = random_requests(12, range(12))
    batch, waiting, arriving, cancelled = (
        ContinuousBatch(ColumnMajorWeights(network), strategy, RULES, 5),
        deque(requests[:4]),
        deque(requests[4:]),
        {2, 9},
    )
    results: dict[int, Rows] = {}
    while waiting or arriving or batch.busy:
        for finished in batch.step(waiting):
            results |= {request.request_id: hypothesis_rows(hypotheses) for request, hypotheses in finished.split()}
        if arriving:
            waiting.append(arriving.popleft())
        waiting = deque(request for request in waiting if request.request_id not in cancelled)
        batch.cancel(cancelled)
    expected = decode_one_by_one(network, strategy, requests)
    assert 9 not in results
    assert results | {2: []} == {number: expected[number] for number in range(12) if number not in cancelled} | {2: []}


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=["greedy", "beam"])
def test_positions_unused_by_all_rows_are_dropped(
    small_network: Make, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences replace finished ones one by one, and the batch is never empty."""
    monkeypatch.setattr("attendo.model.cpu_decoder_state._MIN_DROPPED_POSITIONS", 4)
    network, rules = varied_network(small_network), [SuppressTokens(), SuppressTokens((EOS,))]
    requests = [DecodeRequest(number, (5 + number % 7, 6), 5 + number % 3) for number in range(10)]
    batch, waiting, max_positions = ContinuousBatch(ColumnMajorWeights(network), strategy, rules, 2), deque(requests), 0
    results: dict[int, Rows] = {}
    while waiting or batch.busy:
        for finished in batch.step(waiting):
            results |= {request.request_id: hypothesis_rows(hypotheses) for request, hypotheses in finished.split()}
        if batch._state is not None:
            max_positions = max(max_positions, batch._state.num_positions)
    engine = CachedEngine(network, 1000)
    for request in requests:
        (expected,) = engine.generate([request], strategy, rules)
        assert results[request.request_id] == hypothesis_rows(expected.hypotheses)
    assert max_positions < 20 < sum(request.max_length for request in requests) / 2


def test_short_sentences_do_not_wait_for_long_ones(small_network: Make) -> None:
    requests = [DecodeRequest(0, (5, 6), 40), *(DecodeRequest(number, (7,), 1) for number in range(1, 7))]
    batch = ContinuousBatch(
        ColumnMajorWeights(varied_network(small_network)), Greedy(), [SuppressTokens(), SuppressTokens((EOS,))], 2
    )
    assert [*run_batch(batch, deque(requests))] == [1, 2, 3, 4, 5, 6, 0]


def test_prefixes_and_limits_of_different_lengths_share_a_batch(small_network: Make) -> None:
    network = varied_network(small_network)
    rules: list[Rule] = [SuppressTokens(), ForcedPrefix()]
    requests = [DecodeRequest(n, (5,) * (1 + n), 4 + 3 * (n % 3), prefix=tuple(range(5, 5 + n % 4))) for n in range(6)]
    results = run_batch(ContinuousBatch(ColumnMajorWeights(network), Beam(2), rules, 3), deque(requests))
    engine = CachedEngine(network, 1000)
    for request in requests:
        (expected,) = engine.generate([request], Beam(2), rules)
        assert results[request.request_id] == hypothesis_rows(expected.hypotheses)
        assert all(ids[: len(request.prefix)] == [*request.prefix] for ids, _, _ in results[request.request_id] if ids)


def test_peek_returns_the_tokens_so_far(small_network: Make) -> None:
    network, requests = varied_network(small_network), [DecodeRequest(n, (5 + n, 6), 9) for n in range(3)]
    batch, waiting = (
        ContinuousBatch(ColumnMajorWeights(network), Greedy(), [SuppressTokens(), SuppressTokens((EOS,))], 4),
        deque(requests),
    )
    for step in range(1, 5):
        list(batch.step(waiting))
        ((request, frontier),) = batch.peek({1})
        assert (request.request_id, frontier.length.tolist()) == (1, [step])
    batch.cancel()
    assert not batch.busy
    assert not [*batch.peek({1})]


def test_free_rows_are_removed_from_the_batch(small_network: Make) -> None:
    """A single sentence is one row, for any batch limit and after any number of finished sentences."""
    batch = ContinuousBatch(
        ColumnMajorWeights(varied_network(small_network)), Greedy(), [SuppressTokens(), SuppressTokens((EOS,))], 32
    )
    waiting = deque([DecodeRequest(0, (5, 6), 30), *(DecodeRequest(n, (7,), 1) for n in range(1, 9))])
    sizes: list[int] = []
    while waiting or batch.busy:
        list(batch.step(waiting))
        sizes.append(len(batch._requests))
    assert sizes[0] == 9
    assert sizes[3:-1] == [1] * (len(sizes) - 4)
    assert torch.is_grad_enabled()
