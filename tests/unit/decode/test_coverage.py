"""Coverage accumulated by a search equals the attention of the finished answer, and ranks by the formula."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from error_codes import has_code
from search_rows import make_limits
from sync_detector import SyncDetector
from torch import Tensor
from toy_networks import A, B

from attendo.decode import search as loop
from attendo.decode.beam import Beam
from attendo.decode.coverage import CoverageNetwork, CoverageState
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest, limit_tensors, pad_sources
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Strategy, decode_step, search
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import UsageError
from attendo.model.decoder_state import StaticCacheState
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues
from attendo.text import BOS, EOS, PAD

Make = Callable[..., Transformer]
NETWORKS: dict[str, dict[str, Any]] = {"encoder": {}, "prefix LM": {"num_encoder_layers": 0, "prefix_lm": True}}
BETA = 0.4
RANKING = Ranking("gnmt", 0.6, coverage_penalty=BETA)
STRATEGIES: dict[str, Strategy] = {
    "greedy": Greedy(),
    "sample": Sampling(2, seed=3),
    "beam": Beam(3, RANKING),
    "exhaustive": Beam(3, RANKING, "exhaustive"),
    "diverse": DiverseBeam(4, 2, 0.5, RANKING),
}


def varied_network(make: Make, **changes: Any) -> Transformer:
    """An untrained network with scaled logits, so that many answers end, and with uneven attention."""
    network = make(tie="none", **changes)
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        network.output.weight[EOS].mul_(2.0)
        for name, weight in network.named_parameters():
            if name.endswith(f"{'self' if network.config.prefix_lm else 'cross'}_attention.project.weight"):
                weight.mul_(4.0)
    return network


def make_requests(count: int) -> list[DecodeRequest]:
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    sources = [tuple(torch.randint(4, 17, (length,), generator=generator).tolist()) for length in lengths]
    return [DecodeRequest(number, source, max_length=2 + number % 9) for number, source in enumerate(sources)]


@torch.inference_mode()
def search_hypotheses(network: Transformer, strategy: Strategy, requests: list[DecodeRequest]) -> Frontier:
    ids, mask = pad_sources(requests, torch.device("cpu"))
    state = CoverageState.empty(network.start(network.encode(ids, mask)), mask, strategy.width)
    frontiers = search(
        CoverageNetwork(network), state, limit_tensors(requests, ids.device), strategy, [SuppressTokens()]
    )
    return deque(frontiers, maxlen=1).pop().hypotheses


@torch.inference_mode()
def coverage_of_answer(
    network: Transformer, request: DecodeRequest, ids: list[int], site: str = "decoder.1.cross"
) -> float:
    """Coverage from one forward pass over the complete answer, without a batch and without padding.

    The attention of a prefix LM covers source and target. Its part for the source is scaled to sum to 1.
    """
    attention_maps: dict[str, Tensor] = {}
    target = [BOS, *(token for token in ids if token != EOS)]
    network(torch.tensor([[*request.source, EOS]]), torch.tensor([target]), tap=attention_maps.__setitem__)
    if network.config.prefix_lm:
        over_source = attention_maps["decoder.1.self"][..., : len(request.source) + 1]
        attention_maps[site] = over_source / over_source.sum(dim=-1, keepdim=True)
    attention = attention_maps[site][0].mean(dim=0).sum(dim=0)  # [1, H, T, S] -> [S]
    return sum(math.log(min(each, 1.0)) for each in attention.tolist())


def token_ids(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


@pytest.mark.short(2)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("kind", NETWORKS)
def test_coverage_equals_that_of_one_pass_over_the_answer(small_network: Make, kind: str, name: str) -> None:
    network, strategy, requests = varied_network(small_network, **NETWORKS[kind]), STRATEGIES[name], make_requests(7)
    last = search_hypotheses(network, strategy, requests)
    width = last.length.size(0) // len(requests)
    for row, ids in enumerate(token_ids(last)):
        if last.log_probability[row] != NEG_INF:
            expected = coverage_of_answer(network, requests[row // width], ids)
            assert last.coverage[row].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert len({*last.ended.tolist()}) == 2
    assert (last.coverage < -1).any()


@pytest.mark.parametrize("name", ["beam", "diverse"])
def test_hypotheses_are_sorted_by_a_score_that_includes_coverage(small_network: Make, name: str) -> None:
    network, requests = varied_network(small_network), make_requests(7)
    last = search_hypotheses(network, STRATEGIES[name], requests)
    width = last.length.size(0) // len(requests)
    scores = RANKING.score(last).view(-1, width)
    without = replace(RANKING, coverage_penalty=0.0).score(last).view(-1, width)
    part = RANKING.coverage(last).view(-1, width)
    assert torch.allclose(part, BETA * last.coverage.view(-1, width))
    real = last.log_probability.view(-1, width) != NEG_INF
    assert torch.allclose(scores[real], (without + part)[real])
    alike = (last.ended.view(-1, width)[:, 1:] == last.ended.view(-1, width)[:, :-1]) & real[:, 1:]
    assert (scores.diff(dim=1)[alike] <= 0).all()
    assert (without.diff(dim=1)[alike] > 0).any()


def test_a_coverage_penalty_of_zero_equals_a_plain_beam(small_network: Make) -> None:
    network, requests = varied_network(small_network), make_requests(10)
    ids, mask = pad_sources(requests, torch.device("cpu"))
    with torch.inference_mode():
        state = network.start(network.encode(ids, mask))
    *_, plain = search(network, state, limit_tensors(requests, ids.device), Beam(3), [SuppressTokens()])
    assert token_ids(search_hypotheses(network, Beam(3), requests)) == token_ids(plain.hypotheses)
    assert not plain.hypotheses.coverage.any()


@pytest.mark.parametrize("name", ["diverse", "sample"])
def test_D1_coverage_is_the_same_alone_and_among_others(
    small_network: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, strategy, requests = varied_network(small_network), STRATEGIES[name], make_requests(7)
    removed = search_hypotheses(network, strategy, requests)
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)
    batched = search_hypotheses(network, strategy, requests)
    real = batched.log_probability != NEG_INF
    assert token_ids(batched) == token_ids(removed)
    torch.testing.assert_close(batched.coverage[real], removed.coverage[real])
    for number, request in enumerate(requests[:3]):
        alone, among = search_hypotheses(network, strategy, [request]), batched.select_sentences(torch.tensor([number]))
        exists = alone.log_probability != NEG_INF
        assert token_ids(alone) == token_ids(among)
        torch.testing.assert_close(alone.coverage[exists], among.coverage[exists], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_coverage_with_a_static_cache_is_the_same(small_network: Make) -> None:
    network, strategy, requests = varied_network(small_network), Beam(3, RANKING), make_requests(7)
    ids, mask = pad_sources(requests, torch.device("cpu"))
    storage = [KeysValues(*(torch.zeros(len(requests) * 3, 4, 14, 4) for _ in range(2))) for _ in network.decoder]
    fixed = StaticCacheState.empty(network.start(network.encode(ids, mask)), storage, reorderable=True)
    state, frontier = CoverageState.empty(fixed, mask, 3), strategy.start(limit_tensors(requests, ids.device), 14)
    while frontier.open.any():
        state, frontier = decode_step(CoverageNetwork(network), state, frontier, strategy, [SuppressTokens()])
        assert state.attention.shape == (len(requests) * 3, ids.size(1))
    expected = search_hypotheses(network, strategy, requests)
    real = expected.log_probability != NEG_INF
    assert token_ids(frontier.hypotheses) == token_ids(expected)
    torch.testing.assert_close(frontier.hypotheses.coverage[real], expected.coverage[real], atol=1e-4, rtol=1e-4)


def test_coverage_equals_the_formula_computed_by_hand() -> None:
    """Two sentences of two rows. The third position of the second sentence is padding."""
    attention = torch.tensor([[0.5, 2.0, 0.0], [0.5, 1.0, 0.5], [1.0, 0.25, 0.0], [3.0, 1.0, 0.0]])
    state = CoverageState(None, attention, torch.tensor([[True, True, True], [True, True, False]]))
    coverage = state.coverage().tolist()
    assert coverage[1:] == pytest.approx([2 * math.log(0.5), math.log(0.25), 0.0])
    assert -100 < coverage[0] < math.log(0.5) - 50  # zero attention is finite, not -∞


def test_updating_coverage_does_not_synchronise_the_host() -> None:
    mask = torch.tensor([[True, True, True], [True, True, False]])
    state = CoverageState(make_limits(torch.tensor([5, 5])), torch.rand(4, 3), mask)
    frontier = Beam(2, RANKING).start(state.inner)
    with SyncDetector() as detector:
        RANKING.score(state.update_frontier(frontier))
    assert detector.operations > 0
    assert not detector.caught


def test_the_ranking_adds_coverage_after_length_normalisation() -> None:
    rows = Frontier.start(make_limits(torch.tensor([5])), width=2)
    rows = replace(
        rows,
        ids=torch.tensor([[BOS, A, EOS, PAD, PAD, PAD, PAD], [BOS, A, B, A, EOS, PAD, PAD]]),
        length=torch.tensor([2, 4]),
        log_probability=torch.tensor([-1.0, -2.4]),
        coverage=torch.tensor([-3.0, -0.5]),
    )
    assert Ranking().score(rows).tolist() == pytest.approx([-0.5, -0.6])
    assert Ranking(coverage_penalty=0.2).score(rows).tolist() == pytest.approx([-0.5 - 0.6, -0.6 - 0.1])
    possible = Ranking(coverage_penalty=0.2).best_possible(rows)
    assert torch.equal(possible, Ranking().best_possible(rows))  # the missing attention may still come
    assert Beam(2, Ranking(coverage_penalty=0.2)).best_first(rows).tolist() == [[1, 0]]


def test_invalid_coverage_settings_are_rejected(small_network: Make) -> None:
    with pytest.raises(UsageError, check=has_code("coverage_penalty_without_source")):
        CoverageNetwork(small_network(num_encoder_layers=0))
    with pytest.raises(UsageError, check=has_code("coverage_penalty_negative")):
        Ranking(coverage_penalty=-1.0)
