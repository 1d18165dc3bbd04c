"""A call that is answered within the steps of another one, as a server does it."""

from collections.abc import Callable

from attendo.decode.engines import FastEngine
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.rules import SuppressTokens
from attendo.decode.strategies import Greedy
from attendo.model.transformer import Transformer


def told(answers: list[FinishedBatch]) -> dict[int, list[int]]:
    return {
        request.request_id: ids
        for some in answers
        for request, ids in zip(some.requests, some.hypotheses.ids.tolist(), strict=True)
    }


def test_the_outer_call_goes_on_as_if_nothing_had_been(small_network: Callable[..., Transformer]) -> None:
    engine, strategy, rules = FastEngine(small_network().eval(), 64), Greedy(), (SuppressTokens(),)
    many = [DecodeRequest(number, (5 + number, 6, 7), 3 + number, 1) for number in range(8)]
    alone = told([*engine.generate(many, strategy, rules)])
    outer = engine.generate(many, strategy, rules)
    first = next(outer)  # others are still under way
    assert len(first.requests) < len(many)
    assert told([*engine.generate(many, strategy, rules)]) == alone
    assert told([first, *outer]) == alone
