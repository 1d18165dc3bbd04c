"""The batch that is as large as it must be: the answers of each sentence alone, whoever comes and goes beside it."""

from collections import deque

import pytest
import torch
from lively_network import Make, lively, some_requests

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

Told = list[tuple[list[int], bool, bool]]


def told(frontier: Frontier) -> Told:
    rows = [[each for each in row[1:] if each != PAD] for row in frontier.ids.tolist()]
    return list(zip(rows, frontier.ended.tolist(), frontier.cut.tolist(), strict=True))


def alone(network: Transformer, strategy: Strategy, asked: list[DecodeRequest]) -> dict[int, Told]:
    engine = CachedEngine(network, 1000)
    found = [each for request in asked for each in engine.generate([request], strategy, RULES)]
    return {each.requests[0].request_id: told(each.hypotheses) for each in found}


def worked_off(crowd: ContinuousBatch, waiting: "deque[DecodeRequest]") -> dict[int, Told]:
    found: dict[int, Told] = {}
    while waiting or crowd.busy:
        for answers in crowd.step(waiting):
            found |= {request.request_id: told(hypotheses) for request, hypotheses in answers.split()}
    return found


@pytest.mark.short(2)
@pytest.mark.parametrize("name", STRATEGIES)
def test_D1_a_crowd_gives_the_answers_of_each_alone(small_network: Make, name: str) -> None:
    network, strategy, asked = lively(small_network), STRATEGIES[name], some_requests(8, range(8))
    expected = alone(network, strategy, asked)
    for most in (3, 8):
        assert worked_off(ContinuousBatch(ColumnMajorWeights(network), strategy, RULES, most), deque(asked)) == expected


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("positions", "strategy"),
    [("sinusoidal", Greedy()), ("sinusoidal", Beam(3)), ("learned", Beam(2)), ("rotary", Greedy()), ("none", Beam(2))],
    ids=lambda each: each if isinstance(each, str) else f"{each.width} rows",
)
def test_D2_sentences_may_come_at_any_step(small_network: Make, positions: str, strategy: Strategy) -> None:
    network, asked = lively(small_network, positions=positions), some_requests(12, range(12))
    crowd, waiting, coming, left = (
        ContinuousBatch(ColumnMajorWeights(network), strategy, RULES, 5),
        deque(asked[:4]),
        deque(asked[4:]),
        {2, 9},
    )
    found: dict[int, Told] = {}
    while waiting or coming or crowd.busy:
        for answers in crowd.step(waiting):
            found |= {request.request_id: told(hypotheses) for request, hypotheses in answers.split()}
        if coming:
            waiting.append(coming.popleft())
        waiting = deque(request for request in waiting if request.request_id not in left)
        crowd.cancel(left)
    expected = alone(network, strategy, asked)
    assert 9 not in found
    assert found | {2: []} == {number: expected[number] for number in range(12) if number not in left} | {2: []}


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=["greedy", "beam"])
def test_positions_that_nobody_looks_at_any_more_are_dropped(
    small_network: Make, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence after another takes the place of one that left, while there is always somebody."""
    monkeypatch.setattr("attendo.model.cpu_decoder_state._MIN_DROPPED_POSITIONS", 4)
    network, rules = lively(small_network), [SuppressTokens(), SuppressTokens((EOS,))]
    asked = [DecodeRequest(number, (5 + number % 7, 6), 5 + number % 3) for number in range(10)]
    crowd, waiting, most = ContinuousBatch(ColumnMajorWeights(network), strategy, rules, 2), deque(asked), 0
    found: dict[int, Told] = {}
    while waiting or crowd.busy:
        for answers in crowd.step(waiting):
            found |= {request.request_id: told(hypotheses) for request, hypotheses in answers.split()}
        if crowd._state is not None:
            most = max(most, crowd._state.num_positions)
    engine = CachedEngine(network, 1000)
    for request in asked:
        (expected,) = engine.generate([request], strategy, rules)
        assert found[request.request_id] == told(expected.hypotheses)
    assert most < 20 < sum(request.max_length for request in asked) / 2


def test_short_sentences_do_not_wait_for_long_ones(small_network: Make) -> None:
    asked = [DecodeRequest(0, (5, 6), 40), *(DecodeRequest(number, (7,), 1) for number in range(1, 7))]
    crowd = ContinuousBatch(
        ColumnMajorWeights(lively(small_network)), Greedy(), [SuppressTokens(), SuppressTokens((EOS,))], 2
    )
    assert [*worked_off(crowd, deque(asked))] == [1, 2, 3, 4, 5, 6, 0]


def test_prefixes_and_limits_of_any_length_stand_side_by_side(small_network: Make) -> None:
    network = lively(small_network)
    rules: list[Rule] = [SuppressTokens(), ForcedPrefix()]
    asked = [DecodeRequest(n, (5,) * (1 + n), 4 + 3 * (n % 3), prefix=tuple(range(5, 5 + n % 4))) for n in range(6)]
    found = worked_off(ContinuousBatch(ColumnMajorWeights(network), Beam(2), rules, 3), deque(asked))
    engine = CachedEngine(network, 1000)
    for request in asked:
        (expected,) = engine.generate([request], Beam(2), rules)
        assert found[request.request_id] == told(expected.hypotheses)
        assert all(ids[: len(request.prefix)] == [*request.prefix] for ids, _, _ in found[request.request_id] if ids)


def test_a_look_shows_how_far_a_sentence_has_come(small_network: Make) -> None:
    network, asked = lively(small_network), [DecodeRequest(n, (5 + n, 6), 9) for n in range(3)]
    crowd, waiting = (
        ContinuousBatch(ColumnMajorWeights(network), Greedy(), [SuppressTokens(), SuppressTokens((EOS,))], 4),
        deque(asked),
    )
    for step in range(1, 5):
        list(crowd.step(waiting))
        ((request, frontier),) = crowd.peek({1})
        assert (request.request_id, frontier.length.tolist()) == (1, [step])
    crowd.cancel()
    assert not crowd.busy
    assert not [*crowd.peek({1})]


def test_rows_that_are_free_take_no_part(small_network: Make) -> None:
    """A lone sentence is one row, however many there may be or have been."""
    crowd = ContinuousBatch(
        ColumnMajorWeights(lively(small_network)), Greedy(), [SuppressTokens(), SuppressTokens((EOS,))], 32
    )
    waiting = deque([DecodeRequest(0, (5, 6), 30), *(DecodeRequest(n, (7,), 1) for n in range(1, 9))])
    sizes: list[int] = []
    while waiting or crowd.busy:
        list(crowd.step(waiting))
        sizes.append(len(crowd._requests))
    assert sizes[0] == 9
    assert sizes[3:-1] == [1] * (len(sizes) - 4)
    assert torch.is_grad_enabled()
