"""A call that runs between the steps of another call, as in the server."""

from collections.abc import Callable

from attendo.decode.engines import FastEngine
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.rules import SuppressTokens
from attendo.decode.strategies import Greedy
from attendo.model.transformer import Transformer


def ids_by_request(answers: list[FinishedBatch]) -> dict[int, list[int]]:
    return {
        request.request_id: ids
        for batch in answers
        for request, ids in zip(batch.requests, batch.hypotheses.ids.tolist(), strict=True)
    }


def test_a_nested_call_does_not_change_the_outer_call(small_network: Callable[..., Transformer]) -> None:
    engine, strategy, rules = FastEngine(small_network().eval(), 64), Greedy(), (SuppressTokens(),)
    requests = [DecodeRequest(number, (5 + number, 6, 7), 3 + number, 1) for number in range(8)]
    alone = ids_by_request([*engine.generate(requests, strategy, rules)])
    outer = engine.generate(requests, strategy, rules)
    first = next(outer)  # other requests are still running
    assert len(first.requests) < len(requests)
    assert ids_by_request([*engine.generate(requests, strategy, rules)]) == alone
    assert ids_by_request([first, *outer]) == alone
