"""Sentences dealt to threads: what is found is what one thread finds."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
import torch
from error_codes import has_code
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, MinLength, NoRepeatNgram, SuppressTokens
from attendo.decode.search import Rule, Strategy
from attendo.decode.step_hook import step_hook
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
TOKENS = 16  # of a batch: there are several


@pytest.mark.short(1)
@pytest.mark.parametrize(("strategy", "threads"), [(each, 2) for each in STRATEGIES] + [(Beam(4), 3)], ids=str)
def test_threads_find_what_one_finds(small_network: MakeNetwork, strategy: Strategy, threads: int) -> None:
    network = small_network()
    alone = found(CachedEngine(OnnxNetwork.from_network(network, threads=1), TOKENS), strategy)
    dealt = found(OnnxEngine(OnnxNetwork.from_network(network, threads=threads), TOKENS * strategy.width), strategy)
    assert_same(dealt, alone)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(4)], ids=str)
def test_in_int_8_too(small_network: MakeNetwork, strategy: Strategy) -> None:
    network = small_network()
    onnx = OnnxNetwork.from_network(network, activation_ranges(network, random_examples(network)), threads=2)
    assert_same(found(OnnxEngine(onnx, 1000), strategy), found(CachedEngine(onnx, 1000), strategy))


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(4)], ids=str)
def test_with_all_threads_from_any_step_on(
    small_network: MakeNetwork, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx, used = OnnxNetwork.from_network(small_network(), threads=2), list[Any]()
    one, both = onnx.single_threaded.session, onnx.session
    expected = found(CachedEngine(onnx.single_threaded, 1000), strategy)
    run = type(both).run_with_iobinding

    def watched(runtime: Any, binding: Any) -> None:
        used.append(runtime)
        run(runtime, binding)

    monkeypatch.setattr(type(both), "run_with_iobinding", watched)
    for first in range(8):
        used.clear()
        helped = onnx.single_threaded_until(partial(next, chain(repeat(False, first), repeat(True))))
        assert_same(found(CachedEngine(helped, 1000), strategy), expected)
        assert used == [one] * first + [both] * (len(used) - first)
        assert both in used


def test_the_last_one_at_work_gets_all_threads(small_network: MakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx, seen = OnnxNetwork.from_network(small_network(), threads=2), list[bool]()
    make = onnx.single_threaded_until

    def watched(alone: Callable[[], bool]) -> OnnxNetwork:
        def seen_alone() -> bool:
            seen.append(alone())
            return seen[-1]

        return make(seen_alone)

    monkeypatch.setattr(onnx, "single_threaded_until", watched)
    short, long = DecodeRequest(0, (4, 5), 1), DecodeRequest(1, (6,), 400, min_length=400)
    list(OnnxEngine(onnx, 1000).generate([short, long], Greedy(), RULES))
    assert seen[0] is False
    assert seen == sorted(seen)
    assert seen[-1] is True


def test_every_sentence_is_answered_once_whatever_their_number(small_network: MakeNetwork) -> None:
    engine = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000)
    for number in range(5):
        told = [
            request.request_id
            for some in engine.generate(REQUESTS[:number], Greedy(), RULES)
            for request in some.requests
        ]
        assert sorted(told) == list(range(number))


def test_both_threads_have_sentences_and_one_alone_has_none_beside_it(small_network: MakeNetwork) -> None:
    engine, rule = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000), Watching()
    list(engine.generate(REQUESTS, Greedy(), (rule,)))
    here = threading.get_ident()
    (other,) = set(rule.threads.values()) - {here}
    longest_first = sorted(REQUESTS, key=lambda request: -request.num_positions)
    assert [rule.threads[request.request_id] for request in longest_first] == [here, other] * 3
    alone = Watching()
    list(engine.generate(REQUESTS[:1], Greedy(), (alone,)))
    assert alone.threads == {0: here}


def test_an_error_of_any_sentence_arrives(small_network: MakeNetwork) -> None:
    engine = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000)
    for number in range(len(REQUESTS)):
        wrong = [DecodeRequest(each.request_id, (17,), 9) if each.request_id == number else each for each in REQUESTS]
        with pytest.raises(UsageError, check=has_code("token_id_outside_vocabulary", token_id=17, size=17)):
            list(engine.generate(wrong, Greedy(), RULES))
    assert len(list(engine.generate(REQUESTS, Greedy(), RULES))) == 2


def test_who_looks_on_ends_it(small_network: MakeNetwork) -> None:
    engine = OnnxEngine(OnnxNetwork.from_network(small_network(), threads=2), 1000)

    class NobodyWaitsError(Exception):
        pass

    def look() -> None:
        raise NobodyWaitsError

    with step_hook(look), pytest.raises(NobodyWaitsError):
        list(engine.generate(REQUESTS, Beam(4), RULES))


class Watching(Rule):
    """A rule that forbids nothing and notes which thread asks it about a sentence."""

    only_masks = True

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}

    def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
        self.threads |= dict.fromkeys(frontier.limits.request_id.tolist(), threading.get_ident())
        return log_probs


def found(engine: Any, strategy: Strategy, requests: Sequence[DecodeRequest] = REQUESTS) -> dict[int, Frontier]:
    answers = engine.generate(requests, strategy, RULES)
    return {request.request_id: each for some in answers for request, each in some.split()}


def assert_same(one: dict[int, Frontier], other: dict[int, Frontier]) -> None:
    """All hypotheses of each sentence, with what they are worth."""
    assert sorted(one) == sorted(other) == [each.request_id for each in REQUESTS]
    for number, ours in one.items():
        theirs = other[number]
        assert ours.length.tolist() == theirs.length.tolist()
        assert torch.equal(ours.trim_ids(), theirs.trim_ids())
        assert torch.equal(ours.ended, theirs.ended)
        assert torch.equal(ours.cut, theirs.cut)
        torch.testing.assert_close(ours.value, theirs.value, atol=1e-4, rtol=1e-4)
