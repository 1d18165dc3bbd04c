"""OnnxEngine distributes sentences over threads, and finds the same as one thread."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
import torch
from error_codes import has_code
from search_rows import trim_ids
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, MinLength, NoRepeatNgram, SuppressTokens
from attendo.decode.search import Rule, Strategy, step_hook
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import UsageError
from attendo.model.transformer import Transformer

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from attendo.decode.engines import CachedEngine
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.quantization import activation_ranges, random_examples
from attendo.interop.onnx.session import OnnxNetwork

MakeNetwork = Callable[..., Transformer]

STRATEGIES: list[Strategy] = [
    Greedy(),
    Beam(4),
    Beam(3, Ranking(), "exhaustive"),
    DiverseBeam(4, 2, 0.5, Ranking()),
    Sampling(3, seed=5),
    ConstrainedBeam(4, Ranking(), constraints={2: ((9,),), 3: ((8, 7),)}),
]
RULES: tuple[Rule, ...] = (NoRepeatNgram(3), SuppressTokens(), MinLength(), ForcedPrefix())
REQUESTS = [
    DecodeRequest(0, (4, 5, 6, 7), 9),
    DecodeRequest(1, (6,), 5, min_length=3),
    DecodeRequest(2, (5, 4, 6), 12, prefix=(7, 8)),
    DecodeRequest(3, (8, 9, 10, 11, 12, 13), 7),
    DecodeRequest(4, (4, 4), 30),
    DecodeRequest(5, (16, 15), 0),
]
TOKENS = 16  # per batch, so there are several batches


@pytest.mark.short(1)
@pytest.mark.parametrize(("strategy", "threads"), [(each, 2) for each in STRATEGIES] + [(Beam(4), 3)], ids=str)
def test_several_threads_find_the_same_as_one(small_network: MakeNetwork, strategy: Strategy, threads: int) -> None:
    network = small_network()
    alone = find_all(CachedEngine(OnnxNetwork.from_network(network, threads=1), TOKENS), strategy)
    threaded = find_all(
        OnnxEngine(OnnxNetwork.from_network(network, threads=threads), TOKENS * strategy.width), strategy
    )
    assert_same(threaded, alone)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(4)], ids=str)
def test_int8_finds_the_same_in_threads(small_network: MakeNetwork, strategy: Strategy) -> None:
    network = small_network()
    onnx = OnnxNetwork.from_network(network, activation_ranges(network, random_examples(network)), threads=2)
    assert_same(find_all(OnnxEngine(onnx, 1000), strategy), find_all(CachedEngine(onnx, 1000), strategy))


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(4)], ids=str)
def test_all_threads_can_take_over_at_any_step(
    small_network: MakeNetwork, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx, used = OnnxNetwork.from_network(small_network(), threads=2), list[Any]()
    one, both = onnx.single_threaded.session, onnx.session
    expected = find_all(CachedEngine(onnx.single_threaded, 1000), strategy)
    run = type(both).run_with_iobinding

    def record(runtime: Any, binding: Any) -> None:
        used.append(runtime)
        run(runtime, binding)

    monkeypatch.setattr(type(both), "run_with_iobinding", record)
    for first in range(8):
        used.clear()
        network = onnx.single_threaded_until(partial(next, chain(repeat(False, first), repeat(True))))
        assert_same(find_all(CachedEngine(network, 1000), strategy), expected)
        assert used == [one] * first + [both] * (len(used) - first)
        assert both in used


def test_the_last_running_search_gets_all_threads(small_network: MakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx, flags = OnnxNetwork.from_network(small_network(), threads=2), list[bool]()
    make = onnx.single_threaded_until

    def record(alone: Callable[[], bool]) -> OnnxNetwork:
        def record_alone() -> bool:
            flags.append(alone())
            return flags[-1]

        return make(record_alone)

    monkeypatch.setattr(onnx, "single_threaded_until", record)
    short, long = DecodeRequest(0, (4, 5), 1), DecodeRequest(1, (6,), 400, min_length=400)
    list(OnnxEngine(onnx, 1000).generate([short, long], Greedy(), RULES))
    assert flags[0] is False
    assert flags == sorted(flags)
    assert flags[-1] is True


def test_every_sentence_is_answered_once(small_network: MakeNetwork) -> None:
    engine = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000)
    for number in range(5):
        request_ids = [
            request.request_id
            for some in engine.generate(REQUESTS[:number], Greedy(), RULES)
            for request in some.requests
        ]
        assert sorted(request_ids) == list(range(number))


def test_sentences_alternate_between_the_threads(small_network: MakeNetwork) -> None:
    engine, rule = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000), ThreadRecorder()
    list(engine.generate(REQUESTS, Greedy(), (rule,)))
    here = threading.get_ident()
    (other,) = set(rule.threads.values()) - {here}
    longest_first = sorted(REQUESTS, key=lambda request: -request.num_positions)
    assert [rule.threads[request.request_id] for request in longest_first] == [here, other] * 3
    alone = ThreadRecorder()
    list(engine.generate(REQUESTS[:1], Greedy(), (alone,)))
    assert alone.threads == {0: here}


def test_an_error_of_any_sentence_is_raised(small_network: MakeNetwork) -> None:
    engine = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000)
    for number in range(len(REQUESTS)):
        wrong = [DecodeRequest(each.request_id, (17,), 9) if each.request_id == number else each for each in REQUESTS]
        with pytest.raises(UsageError, check=has_code("token_id_outside_vocabulary", token_id=17, size=17)):
            list(engine.generate(wrong, Greedy(), RULES))
    assert len(list(engine.generate(REQUESTS, Greedy(), RULES))) == 2


def test_a_step_hook_can_cancel_the_search(small_network: MakeNetwork) -> None:
    engine = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000)

    class CancelledError(Exception):
        pass

    def cancel() -> None:
        raise CancelledError

    with step_hook(cancel), pytest.raises(CancelledError):
        list(engine.generate(REQUESTS, Beam(4), RULES))


class ThreadRecorder(Rule):
    """A rule that forbids nothing and records the thread of each sentence."""

    only_masks = True

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}

    def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
        self.threads |= dict.fromkeys(frontier.limits.request_id.tolist(), threading.get_ident())
        return log_probs


def find_all(engine: Any, strategy: Strategy, requests: Sequence[DecodeRequest] = REQUESTS) -> dict[int, Frontier]:
    answers = engine.generate(requests, strategy, RULES)
    return {request.request_id: each for some in answers for request, each in some.split()}


def assert_same(one: dict[int, Frontier], other: dict[int, Frontier]) -> None:
    """Compare all hypotheses of each sentence, with their scores."""
    assert sorted(one) == sorted(other) == [each.request_id for each in REQUESTS]
    for number, ours in one.items():
        theirs = other[number]
        assert ours.length.tolist() == theirs.length.tolist()
        assert torch.equal(trim_ids(ours), trim_ids(theirs))
        assert torch.equal(ours.ended, theirs.ended)
        assert torch.equal(ours.cut, theirs.cut)
        torch.testing.assert_close(ours.value, theirs.value, atol=1e-4, rtol=1e-4)
