"""The cached engine gives the answers of the textbook engine."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from varied_network import NETWORKS, Make, random_requests, varied_network

from attendo.decode.beam import Beam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.engines import CachedEngine, Engine, TextbookEngine
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, MinLength, NoRepeatNgram, SuppressTokens
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy, Sampling
from attendo.text import PAD

RULES = (SuppressTokens(), NoRepeatNgram(3), MinLength(), ForcedPrefix())
STRATEGIES: dict[str, Strategy] = {
    "greedy": Greedy(),
    "samples": Sampling(3, seed=2),
    "beam": Beam(4),
    "wide beam": Beam(9),  # too many rows to share one cache
    "groups": DiverseBeam(6, 3),
}


def make_requests(count: int) -> list[DecodeRequest]:
    """Some requests have a prefix, some a minimum length."""
    requests = random_requests(count, range(1, 14))
    return [
        replace(each, min_length=each.request_id % 3, prefix=each.source[: each.request_id % 2]) for each in requests
    ]


def generate_answers(
    engine: Engine, strategy: Strategy, requests: Sequence[DecodeRequest]
) -> list[tuple[list[list[int]], list[float]]]:
    """Token ids and log-probabilities of the hypotheses, in the order of the requests."""
    found = [each for batch in engine.generate(requests, strategy, RULES) for each in batch.split()]
    found.sort(key=lambda each: each[0].request_id)
    return [
        ([[token for token in row if token != PAD] for row in each.ids.tolist()], each.log_probability.tolist())
        for _, each in found
    ]


@pytest.mark.short(2)
@pytest.mark.parametrize("positions", [150, 1000], ids=["small batches", "one batch"])
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("kind", NETWORKS)
def test_D1_the_cached_engine_equals_the_textbook_engine(
    small_network: Make, kind: str, name: str, positions: int
) -> None:
    network, requests = varied_network(small_network, **NETWORKS[kind]), make_requests(14)
    expected = generate_answers(TextbookEngine(network, 1000), STRATEGIES[name], requests)
    found = generate_answers(CachedEngine(network, positions), STRATEGIES[name], requests)
    assert len({len(ids[0]) for ids, _ in expected}) > 4
    for (ids, scores), (expected_ids, expected_scores) in zip(found, expected, strict=True):
        assert ids == expected_ids
        assert scores == pytest.approx(expected_scores, abs=1e-4)
