"""The batch of fixed shape: the answers of the growing one, whatever is beside a sentence or was there before it."""

from collections import deque
from collections.abc import Sequence

import pytest
import torch
from lively_network import Make, lively, some_requests

from attendo.decode.beam import Beam
from attendo.decode.coverage import CoverageNetwork, CoverageState
from attendo.decode.frontier import Frontier
from attendo.decode.networks import Ensemble
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest, limit_tensors, pad_sources
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Rule, Seq2SeqNetwork, Strategy, search
from attendo.decode.static_batch import BatchShape, FinishedPoller, StaticBatch
from attendo.decode.strategies import Greedy, Sampling
from attendo.text import EOS, PAD

RULES = [SuppressTokens()]
STRATEGIES = {
    "greedy": Greedy(),
    "beam": Beam(3),
    "first": Beam(4, Ranking("gnmt", 0.6), "first", patience=1.5),
    "exhaustive": Beam(2, stop="exhaustive"),
    "samples": Sampling(3, seed=5),
}


def requests(count: int) -> list[DecodeRequest]:
    return some_requests(count, range(12))


@torch.inference_mode()
def by_growing(network: Seq2SeqNetwork, strategy: Strategy, asked: list[DecodeRequest]) -> Frontier:
    ids, mask = pad_sources(asked, torch.device("cpu"))
    state = network.start(network.encode(ids, mask))
    return deque(search(network, state, limit_tensors(asked, ids.device), strategy, RULES), maxlen=1).pop().hypotheses


def in_slots(
    network: Seq2SeqNetwork,
    strategy: Strategy,
    rules: Sequence[Rule],
    sizes: BatchShape,
    asked: Sequence[DecodeRequest],
) -> list[tuple[DecodeRequest, Frontier]]:
    found = StaticBatch(network, strategy, rules, sizes).generate(asked)
    return [each for answers in found for each in answers.split()]


def told(frontier: Frontier) -> list[tuple[list[int], bool, bool]]:
    rows = [[each for each in row[1:] if each != PAD] for row in frontier.ids.tolist()]
    return list(zip(rows, frontier.ended.tolist(), frontier.cut.tolist(), strict=True))


@pytest.mark.short(2)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("slots", [1, 4, 16])
def test_D1_slots_give_the_answers_of_the_growing_batch(small_network: Make, name: str, slots: int) -> None:
    network, strategy, asked = lively(small_network), STRATEGIES[name], requests(16)
    expected = by_growing(network, strategy, asked)
    answers = in_slots(network, strategy, RULES, BatchShape(slots, 10, 14), asked)
    assert sorted(request.request_id for request, _ in answers) == list(range(16))
    assert len({*expected.length.tolist()}) > 4
    for request, found in answers:
        ours = expected.select_sentences(torch.tensor([request.request_id]))
        assert told(found) == told(ours)
        torch.testing.assert_close(found.log_probability, ours.log_probability, atol=1e-4, rtol=1e-4)


@pytest.mark.short(1)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_D2_rows_may_stand_at_different_positions(small_network: Make, positions: str, norm: str) -> None:
    network = lively(small_network, positions=positions, norm=norm)
    asked = requests(24)
    expected = by_growing(network, Beam(3), asked)
    for request, found in in_slots(network, Beam(3), RULES, BatchShape(5, 10, 14), asked):
        assert told(found) == told(expected.select_sentences(torch.tensor([request.request_id])))


def test_short_sentences_do_not_wait_for_long_ones(small_network: Make) -> None:
    network = lively(small_network)
    asked = [DecodeRequest(0, (5, 6), 40), *(DecodeRequest(number, (7,), 1) for number in range(1, 7))]
    rules = [SuppressTokens(), SuppressTokens((EOS,))]
    order = [request.request_id for request, _ in in_slots(network, Greedy(), rules, BatchShape(2, 4, 42), asked)]
    assert order == [1, 2, 3, 4, 5, 6, 0]


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_what_is_seen_late_changes_no_answer(
    small_network: Make, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where sentences that took a free slot must not be taken for those that were done in it."""
    network, asked = lively(small_network), requests(16)
    expected = by_growing(network, strategy, asked)
    monkeypatch.setattr(
        "attendo.decode.static_batch.FinishedPoller", lambda device, count: FinishedPoller(device, count, delay=2)
    )
    answers = in_slots(network, strategy, RULES, BatchShape(3, 10, 14), asked)
    assert sorted(request.request_id for request, _ in answers) == list(range(16))
    for request, found in answers:
        assert told(found) == told(expected.select_sentences(torch.tensor([request.request_id])))


def test_sentences_whose_answers_nobody_took_are_forgotten(small_network: Make) -> None:
    network, asked = lively(small_network), requests(16)
    slots = StaticBatch(network, Beam(3), RULES, BatchShape(3, 10, 14))
    next(iter(slots.generate(asked[:8])))
    again = [request.request_id for answers in slots.generate(asked[8:]) for request in answers.requests]
    assert sorted(again) == list(range(8, 16))


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_sentences_join_those_that_are_under_way(small_network: Make, strategy: Strategy) -> None:
    """As in a server: some come while others are being answered, some leave before they are."""
    network, asked = lively(small_network), requests(16)
    expected = by_growing(network, strategy, asked)
    slots, waiting, found = StaticBatch(network, strategy, RULES, BatchShape(5, 10, 14)), deque(asked[:4]), {}
    coming, left = deque(asked[4:]), {2, 9}
    while waiting or coming or slots.busy:
        for answers in slots.step(waiting):
            found |= {request.request_id: told(hypotheses) for request, hypotheses in answers.split()}
        if coming:
            waiting.append(coming.popleft())
        waiting = deque(request for request in waiting if request.request_id not in left)
        slots.cancel(left)
    assert found == {
        number: told(expected.select_sentences(torch.tensor([number]))) for number in range(16) if number not in left
    }


def test_D1_an_ensemble_in_slots_gives_the_answers_of_the_growing_batch(small_network: Make) -> None:
    pair = Ensemble([lively(small_network), lively(small_network, norm="post")], weights=[1.0, 2.0])
    asked = requests(16)
    expected = by_growing(pair, Beam(3), asked)
    for request, found in in_slots(pair, Beam(3), RULES, BatchShape(5, 10, 14), asked):
        assert told(found) == told(expected.select_sentences(torch.tensor([request.request_id])))


def test_D1_coverage_in_slots_is_that_of_the_growing_batch(small_network: Make) -> None:
    network, asked = lively(small_network), requests(16)
    strategy = Beam(3, Ranking("gnmt", 0.6, coverage_penalty=0.7))
    ids, mask = pad_sources(asked, torch.device("cpu"))
    with torch.no_grad():
        state = CoverageState.empty(network.start(network.encode(ids, mask)), mask, strategy.width)
    frontiers = search(CoverageNetwork(network), state, limit_tensors(asked, ids.device), strategy, RULES)
    expected = deque(frontiers, maxlen=1).pop().hypotheses
    assert len({*expected.coverage.tolist()}) > 16
    for request, found in in_slots(CoverageNetwork(network), strategy, RULES, BatchShape(5, 10, 14), asked):
        ours = expected.select_sentences(torch.tensor([request.request_id]))
        assert told(found) == told(ours)
        torch.testing.assert_close(found.coverage, ours.coverage, atol=1e-4, rtol=1e-4)
