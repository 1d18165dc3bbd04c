"""Engines: whatever they keep, and wherever they keep it, the answers of the textbook."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from lively_network import Make, lively, some_requests

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
    "wide beam": Beam(9),  # too many rows to share a storage
    "groups": DiverseBeam(6, 3),
}


def requests(count: int) -> list[DecodeRequest]:
    """Some with a prefix, some with a least length."""
    made = some_requests(count, range(1, 14))
    return [replace(each, min_length=each.request_id % 3, prefix=each.source[: each.request_id % 2]) for each in made]


def answers(
    engine: Engine, strategy: Strategy, asked: Sequence[DecodeRequest]
) -> list[tuple[list[list[int]], list[float]]]:
    """By number: the ids of the hypotheses of each, and their log-probabilities."""
    found = [each for some in engine.generate(asked, strategy, RULES) for each in some.split()]
    found.sort(key=lambda each: each[0].request_id)
    return [
        ([[token for token in row if token != PAD] for row in each.ids.tolist()], each.log_probability.tolist())
        for _, each in found
    ]


@pytest.mark.short(2)
@pytest.mark.parametrize("positions", [150, 1000], ids=["small batches", "one batch"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_D1_the_cached_engine_answers_as_the_textbook_does(small_network: Make, name: str, positions: int) -> None:
    network, asked = lively(small_network), requests(14)
    expected = answers(TextbookEngine(network, 1000), STRATEGIES[name], asked)
    found = answers(CachedEngine(network, positions), STRATEGIES[name], asked)
    assert len({len(ids[0]) for ids, _ in expected}) > 4
    for (ids, scores), (expected_ids, expected_scores) in zip(found, expected, strict=True):
        assert ids == expected_ids
        assert scores == pytest.approx(expected_scores, abs=1e-4)
