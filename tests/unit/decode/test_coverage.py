"""Coverage: what a search keeps count of is what a look at the finished answer shows, and it ranks by the formula."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from error_codes import has_code
from tables import A, B
from torch import Tensor
from waiting import Watch

from attendo.decode import search as loop
from attendo.decode.beam import Beam
from attendo.decode.coverage import CoverageNetwork, CoverageState
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
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
BETA = 0.4
RANKING = Ranking("gnmt", 0.6, coverage_penalty=BETA)
STRATEGIES: dict[str, Strategy] = {
    "greedy": Greedy(),
    "sample": Sampling(2, seed=3),
    "beam": Beam(3, RANKING),
    "exhaustive": Beam(3, RANKING, "exhaustive"),
    "diverse": DiverseBeam(4, 2, 0.5, RANKING),
}


def lively(make: Make, **changes: Any) -> Transformer:
    """Untrained, but with logits so far apart that many answers end by themselves, and attention that is not even."""
    network = make(tie="none", **changes)
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        network.output.weight[EOS].mul_(2.0)
        for name, weight in network.named_parameters():
            if name.endswith("cross_attention.project.weight"):
                weight.mul_(4.0)
    return network


def requests(count: int) -> list[DecodeRequest]:
    dice = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, 9, (count,), generator=dice).tolist()
    sources = [tuple(torch.randint(4, 17, (length,), generator=dice).tolist()) for length in lengths]
    return [DecodeRequest(number, source, max_length=2 + number % 9) for number, source in enumerate(sources)]


@torch.inference_mode()
def found(network: Transformer, strategy: Strategy, asked: list[DecodeRequest], layer: int = -1) -> Frontier:
    ids, mask = pad_sources(asked, torch.device("cpu"))
    state = CoverageState.empty(network.start(network.encode(ids, mask)), mask, strategy.width)
    told = search(
        CoverageNetwork(network, layer), state, limit_tensors(asked, ids.device), strategy, [SuppressTokens()]
    )
    return deque(told, maxlen=1).pop().hypotheses


@torch.inference_mode()
def looked_at(network: Transformer, request: DecodeRequest, ids: list[int], site: str = "decoder.1.cross") -> float:
    """By a look at the whole answer at once, the source alone and without padding."""
    seen: dict[str, Tensor] = {}
    read = [BOS, *(token for token in ids if token != EOS)]
    network(torch.tensor([[*request.source, EOS]]), torch.tensor([read]), tap=seen.__setitem__)
    attention = seen[site][0].mean(dim=0).sum(dim=0)  # [1, H, T, S] -> [S]
    return sum(math.log(min(each, 1.0)) for each in attention.tolist())


def spoken(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


@pytest.mark.short(2)
@pytest.mark.parametrize("name", STRATEGIES)
def test_coverage_is_that_of_a_look_at_the_finished_answer(small_network: Make, name: str) -> None:
    network, strategy, asked = lively(small_network), STRATEGIES[name], requests(7)
    last = found(network, strategy, asked)
    width = last.length.size(0) // len(asked)
    for row, ids in enumerate(spoken(last)):
        if last.log_probability[row] != NEG_INF:
            expected = looked_at(network, asked[row // width], ids)
            assert last.coverage[row].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert len({*last.ended.tolist()}) == 2
    assert (last.coverage < -1).any()


def test_the_attention_of_another_layer_can_be_taken(small_network: Make) -> None:
    network, asked = lively(small_network), requests(6)
    last, first = (found(network, Greedy(), asked, layer) for layer in (1, 0))
    assert spoken(last) == spoken(first)
    for request, ids, told in zip(asked, spoken(first), first.coverage.tolist(), strict=True):
        assert told == pytest.approx(looked_at(network, request, ids, "decoder.0.cross"), rel=1e-4, abs=1e-4)
    assert not torch.allclose(last.coverage, first.coverage, atol=0.1)


@pytest.mark.parametrize("name", ["beam", "diverse"])
def test_hypotheses_stand_in_order_of_a_score_that_coverage_is_part_of(small_network: Make, name: str) -> None:
    network, asked = lively(small_network), requests(7)
    last = found(network, STRATEGIES[name], asked)
    width = last.length.size(0) // len(asked)
    scores = RANKING.score(last).view(-1, width)
    without = replace(RANKING, coverage_penalty=0.0).score(last).view(-1, width)
    part = RANKING.coverage(last).view(-1, width)
    assert torch.allclose(part, BETA * last.coverage.view(-1, width))
    real = last.log_probability.view(-1, width) != NEG_INF
    assert torch.allclose(scores[real], (without + part)[real])
    alike = (last.ended.view(-1, width)[:, 1:] == last.ended.view(-1, width)[:, :-1]) & real[:, 1:]
    assert (scores.diff(dim=1)[alike] <= 0).all()
    assert (without.diff(dim=1)[alike] > 0).any()


def test_a_penalty_of_nothing_is_a_plain_beam(small_network: Make) -> None:
    network, asked = lively(small_network), requests(10)
    ids, mask = pad_sources(asked, torch.device("cpu"))
    with torch.inference_mode():
        state = network.start(network.encode(ids, mask))
    *_, plain = search(network, state, limit_tensors(asked, ids.device), Beam(3), [SuppressTokens()])
    assert spoken(found(network, Beam(3), asked)) == spoken(plain.hypotheses)
    assert not plain.hypotheses.coverage.any()


@pytest.mark.parametrize("name", ["diverse", "sample"])
def test_D1_coverage_is_the_same_alone_and_among_others(
    small_network: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, strategy, asked = lively(small_network), STRATEGIES[name], requests(7)
    leaving = found(network, strategy, asked)
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)
    together = found(network, strategy, asked)
    real = together.log_probability != NEG_INF
    assert spoken(together) == spoken(leaving)
    torch.testing.assert_close(together.coverage[real], leaving.coverage[real])
    for number, request in enumerate(asked[:3]):
        alone, among = found(network, strategy, [request]), together.select_sentences(torch.tensor([number]))
        there_is = alone.log_probability != NEG_INF
        assert spoken(alone) == spoken(among)
        torch.testing.assert_close(alone.coverage[there_is], among.coverage[there_is], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_in_storage_of_fixed_size_coverage_is_the_same(small_network: Make) -> None:
    network, strategy, asked = lively(small_network), Beam(3, RANKING), requests(7)
    ids, mask = pad_sources(asked, torch.device("cpu"))
    storage = [KeysValues(*(torch.zeros(len(asked) * 3, 4, 14, 4) for _ in range(2))) for _ in network.decoder]
    fixed = StaticCacheState.empty(network.start(network.encode(ids, mask)), storage, reorderable=True)
    state, frontier = CoverageState.empty(fixed, mask, 3), strategy.start(limit_tensors(asked, ids.device), 14)
    while frontier.open.any():
        state, frontier = decode_step(CoverageNetwork(network), state, frontier, strategy, [SuppressTokens()])
        assert state.attention.shape == (len(asked) * 3, ids.size(1))
    expected = found(network, strategy, asked)
    real = expected.log_probability != NEG_INF
    assert spoken(frontier.hypotheses) == spoken(expected)
    torch.testing.assert_close(frontier.hypotheses.coverage[real], expected.coverage[real], atol=1e-4, rtol=1e-4)


def test_the_formula_by_hand() -> None:
    """Attention of .5, 2 and nothing to three positions, of 1, .25 and padding to the others."""
    attention = torch.tensor([[0.5, 2.0, 0.0], [0.5, 1.0, 0.5], [1.0, 0.25, 0.0], [3.0, 1.0, 0.0]])
    state = CoverageState(None, attention, torch.tensor([[True, True, True], [True, True, False]]))
    coverage = state.coverage().tolist()
    assert coverage[1:] == pytest.approx([2 * math.log(0.5), math.log(0.25), 0.0])
    assert -100 < coverage[0] < math.log(0.5) - 50  # no attention at all is no reason for -∞


def test_keeping_count_does_not_make_the_host_wait() -> None:
    mask = torch.tensor([[True, True, True], [True, True, False]])
    state = CoverageState(RowLimits.make(torch.tensor([5, 5])), torch.rand(4, 3), mask)
    frontier = Beam(2, RANKING).start(state.inner)
    with Watch() as watch:
        RANKING.score(state.update_frontier(frontier))
    assert watch.operations > 0
    assert not watch.caught


def test_the_ranking_adds_coverage_behind_the_length_normalisation() -> None:
    rows = Frontier.start(RowLimits.make(torch.tensor([5])), width=2)
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
    assert torch.equal(possible, Ranking().best_possible(rows))  # what is left may yet be covered
    assert Beam(2, Ranking(coverage_penalty=0.2)).best_first(rows).tolist() == [[1, 0]]


def test_what_cannot_be_covered_is_refused(small_network: Make) -> None:
    with pytest.raises(UsageError, check=has_code("coverage_penalty_without_source")):
        CoverageNetwork(small_network(num_encoder_layers=0))
    with pytest.raises(UsageError, check=has_code("coverage_layer_out_of_range", first=-2, last=1, layer=2)):
        CoverageNetwork(small_network(), layer=2)
    with pytest.raises(UsageError, check=has_code("coverage_penalty_negative")):
        Ranking(coverage_penalty=-1.0)
