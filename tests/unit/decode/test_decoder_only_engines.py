"""Engines with decoder-only networks: requests have a prefix and no source."""

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

import pytest
import torch
from error_codes import has_code

from attendo.decode.beam import Beam
from attendo.decode.continuous_batch import ColumnMajorWeights, ContinuousBatch
from attendo.decode.engines import CachedEngine, Engine, FastEngine, TextbookEngine
from attendo.decode.requests import DecodeRequest, FinishedBatch, encode_and_start, length_batches
from attendo.decode.rules import ForcedPrefix, SuppressTokens
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import UsageError
from attendo.model.transformer import Transformer

RULES = (SuppressTokens(), ForcedPrefix())
REQUESTS = [
    DecodeRequest(number, (), limit, prefix=prefix)
    for number, (limit, prefix) in enumerate(
        [(9, (5, 6)), (12, ()), (4, (7, 8, 9, 10)), (10, (11,)), (7, (5,)), (9, (16, 15, 14, 13, 12))]
    )
]
STRATEGIES: dict[str, Strategy] = {"greedy": Greedy(), "beam": Beam(3), "samples": Sampling(2, seed=3)}


@pytest.fixture(scope="module", params=["rotary", "relative"])
def network(request: pytest.FixtureRequest, small_network: Callable[..., Transformer]) -> Transformer:
    network = small_network(num_encoder_layers=0, tie="none", positions=request.param).requires_grad_(False)
    for weight in network.parameters():
        weight.mul_(1.5 if weight.dim() > 1 else 1.0)
    return network


def generate_ids(engine: Engine, requests: Sequence[DecodeRequest], strategy: Strategy) -> dict[int, list[list[int]]]:
    return collect_ids(engine.generate(requests, strategy, RULES))


def collect_ids(batches: object) -> dict[int, list[list[int]]]:
    results = {}
    for each in batches:  # type: ignore[attr-defined]
        assert isinstance(each, FinishedBatch)
        for request, frontier in each.split():
            rows = zip(frontier.ids.tolist(), frontier.length.tolist(), strict=True)
            results[request.request_id] = [row[: length + 1] for row, length in rows]
    return results


@pytest.mark.short(1)
@pytest.mark.parametrize("name", STRATEGIES)
def test_all_engines_give_the_same_answers(network: Transformer, name: str) -> None:
    strategy = STRATEGIES[name]
    expected = generate_ids(TextbookEngine(network, 100), REQUESTS, strategy)
    for request in REQUESTS:
        row = expected[request.request_id][0]
        assert tuple(row[1 : len(request.prefix) + 1]) == request.prefix
    for engine in (CachedEngine(network, 100), CachedEngine(network, 1), CachedEngine(network, 100, padding=3)):
        assert generate_ids(engine, REQUESTS, strategy) == expected
    for engine in (FastEngine(network, 100), FastEngine(network, 1)):
        assert generate_ids(engine, REQUESTS, strategy) == expected


@pytest.mark.short(1)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_continuous_batch_gives_the_same_answers(network: Transformer, name: str) -> None:
    batch = ContinuousBatch(ColumnMajorWeights(network), STRATEGIES[name], RULES, max_sentences=3)
    waiting, batches = deque(REQUESTS), []
    while waiting or batch.busy:
        batches.extend(batch.step(waiting))
    assert collect_ids(batches) == generate_ids(TextbookEngine(network, 100), REQUESTS, STRATEGIES[name])


def test_a_request_without_a_source_counts_its_answer_positions() -> None:
    assert DecodeRequest(0, (4, 5), 9).num_positions == 3
    assert DecodeRequest(0, (), 9, prefix=(4,)).num_positions == 10
    groups = [
        [each.request_id for each in group] for group in length_batches(REQUESTS, attrgetter("num_positions"), 22)
    ]
    assert groups == [[1], [3, 0], [5, 4], [2]]


def test_one_cached_batch_serves_all_prefix_lengths(network: Transformer) -> None:
    engine = FastEngine(network, 100)
    for length in range(1, 8):
        generate_ids(engine, [DecodeRequest(0, (), 12, prefix=(5,) * length)], Greedy())
    assert len(engine._cached_batches) == 1


def test_an_empty_source_equals_no_source(network: Transformer, small_network: Callable[..., Transformer]) -> None:
    ids = torch.tensor([[4, 5], [6, 7]])
    state = encode_and_start(network, torch.tensor([[9, 3], [8, 3]]), None)
    assert [kv.keys.shape[:3] for kv in state.memory] == [(2, 4, 0)] * 2
    assert torch.equal(network.step(ids, state)[0], network(None, ids))
    assert torch.equal(network(torch.zeros(2, 0, dtype=torch.long), ids), network(None, ids))
    with pytest.raises(UsageError, check=has_code("decoder_only_memory_given")):
        network.start(small_network().encode(ids))
