"""The static batch gives the answers of the plain search, in any slot and beside any other sentence."""

from collections import deque
from collections.abc import Sequence

import pytest
import torch
from varied_network import NETWORKS, Make, random_requests, varied_network

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


def make_requests(count: int) -> list[DecodeRequest]:
    return random_requests(count, range(12))


@torch.inference_mode()
def search_hypotheses(network: Seq2SeqNetwork, strategy: Strategy, requests: list[DecodeRequest]) -> Frontier:
    ids, mask = pad_sources(requests, torch.device("cpu"))
    state = network.start(network.encode(ids, mask))
    return (
        deque(search(network, state, limit_tensors(requests, ids.device), strategy, RULES), maxlen=1).pop().hypotheses
    )


def run_static_batch(
    network: Seq2SeqNetwork,
    strategy: Strategy,
    rules: Sequence[Rule],
    sizes: BatchShape,
    requests: Sequence[DecodeRequest],
) -> list[tuple[DecodeRequest, Frontier]]:
    found = StaticBatch(network, strategy, rules, sizes).generate(requests)
    return [each for answers in found for each in answers.split()]


def hypothesis_rows(frontier: Frontier) -> list[tuple[list[int], bool, bool]]:
    rows = [[each for each in row[1:] if each != PAD] for row in frontier.ids.tolist()]
    return list(zip(rows, frontier.ended.tolist(), frontier.cut.tolist(), strict=True))


@pytest.mark.short(2)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("kind", NETWORKS)
def test_D1_a_static_batch_gives_the_answers_of_a_plain_search(
    small_network: Make, kind: str, name: str, slots: int
) -> None:
    network, strategy, requests = varied_network(small_network, **NETWORKS[kind]), STRATEGIES[name], make_requests(16)
    expected = search_hypotheses(network, strategy, requests)
    answers = run_static_batch(network, strategy, RULES, BatchShape(slots, 10, 14), requests)
    assert sorted(request.request_id for request, _ in answers) == list(range(16))
    assert len({*expected.length.tolist()}) > 4
    for request, found in answers:
        ours = expected.select_sentences(torch.tensor([request.request_id]))
        assert hypothesis_rows(found) == hypothesis_rows(ours)
        torch.testing.assert_close(found.log_probability, ours.log_probability, atol=1e-4, rtol=1e-4)


@pytest.mark.short(1)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_D2_rows_may_be_at_different_positions(small_network: Make, positions: str, norm: str) -> None:
    network = varied_network(small_network, positions=positions, norm=norm)
    requests = make_requests(24)
    expected = search_hypotheses(network, Beam(3), requests)
    for request, found in run_static_batch(network, Beam(3), RULES, BatchShape(5, 10, 14), requests):
        assert hypothesis_rows(found) == hypothesis_rows(expected.select_sentences(torch.tensor([request.request_id])))


def test_short_sentences_do_not_wait_for_long_ones(small_network: Make) -> None:
    network = varied_network(small_network)
    requests = [DecodeRequest(0, (5, 6), 40), *(DecodeRequest(number, (7,), 1) for number in range(1, 7))]
    rules = [SuppressTokens(), SuppressTokens((EOS,))]
    order = [
        request.request_id for request, _ in run_static_batch(network, Greedy(), rules, BatchShape(2, 4, 42), requests)
    ]
    assert order == [1, 2, 3, 4, 5, 6, 0]


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_delayed_finished_flags_change_no_answer(
    small_network: Make, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, a new sentence in a reused slot must not be mistaken for the finished one."""
    network, requests = varied_network(small_network), make_requests(16)
    expected = search_hypotheses(network, strategy, requests)
    monkeypatch.setattr(
        "attendo.decode.static_batch.FinishedPoller", lambda device, count: FinishedPoller(device, count, delay=2)
    )
    answers = run_static_batch(network, strategy, RULES, BatchShape(3, 10, 14), requests)
    assert sorted(request.request_id for request, _ in answers) == list(range(16))
    for request, found in answers:
        assert hypothesis_rows(found) == hypothesis_rows(expected.select_sentences(torch.tensor([request.request_id])))


def test_unread_answers_are_dropped_by_the_next_call(small_network: Make) -> None:
    network, requests = varied_network(small_network), make_requests(16)
    batch = StaticBatch(network, Beam(3), RULES, BatchShape(3, 10, 14))
    next(iter(batch.generate(requests[:8])))
    request_ids = [request.request_id for answers in batch.generate(requests[8:]) for request in answers.requests]
    assert sorted(request_ids) == list(range(8, 16))


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_sentences_join_and_leave_a_running_batch(small_network: Make, strategy: Strategy) -> None:
    """As in the server: sentences join a running batch, and some are cancelled."""
    network, requests = varied_network(small_network), make_requests(16)
    expected = search_hypotheses(network, strategy, requests)
    batch, waiting, found = StaticBatch(network, strategy, RULES, BatchShape(5, 10, 14)), deque(requests[:4]), {}
    arriving, cancelled = deque(requests[4:]), {2, 9}
    while waiting or arriving or batch.busy:
        for answers in batch.step(waiting):
            found |= {request.request_id: hypothesis_rows(hypotheses) for request, hypotheses in answers.split()}
        if arriving:
            waiting.append(arriving.popleft())
        waiting = deque(request for request in waiting if request.request_id not in cancelled)
        batch.cancel(cancelled)
    assert found == {
        number: hypothesis_rows(expected.select_sentences(torch.tensor([number])))
        for number in range(16)
        if number not in cancelled
    }


def test_D1_an_ensemble_in_a_static_batch_equals_a_plain_search(small_network: Make) -> None:
    pair = Ensemble([varied_network(small_network), varied_network(small_network, norm="post")], weights=[1.0, 2.0])
    requests = make_requests(16)
    expected = search_hypotheses(pair, Beam(3), requests)
    for request, found in run_static_batch(pair, Beam(3), RULES, BatchShape(5, 10, 14), requests):
        assert hypothesis_rows(found) == hypothesis_rows(expected.select_sentences(torch.tensor([request.request_id])))


def test_D1_coverage_in_a_static_batch_equals_a_plain_search(small_network: Make) -> None:
    network, requests = varied_network(small_network), make_requests(16)
    strategy = Beam(3, Ranking("gnmt", 0.6, coverage_penalty=0.7))
    ids, mask = pad_sources(requests, torch.device("cpu"))
    with torch.no_grad():
        state = CoverageState.empty(network.start(network.encode(ids, mask)), mask, strategy.width)
    frontiers = search(CoverageNetwork(network), state, limit_tensors(requests, ids.device), strategy, RULES)
    expected = deque(frontiers, maxlen=1).pop().hypotheses
    assert len({*expected.coverage.tolist()}) > 16
    for request, found in run_static_batch(CoverageNetwork(network), strategy, RULES, BatchShape(5, 10, 14), requests):
        ours = expected.select_sentences(torch.tensor([request.request_id]))
        assert hypothesis_rows(found) == hypothesis_rows(ours)
        torch.testing.assert_close(found.coverage, ours.coverage, atol=1e-4, rtol=1e-4)
