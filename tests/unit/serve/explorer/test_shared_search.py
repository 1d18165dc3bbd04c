"""Requests for the same output read one search while it runs, and others get their own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from small_server import TEXT, SmallServer, long_model, random_model

from attendo.decode.search import step_hook
from attendo.serve.explorer import search as search_module
from attendo.serve.explorer.schemas import AnswerRequest, TargetRequest
from attendo.serve.explorer.search import ExplorerSearch, InspectedPair
from attendo.serve.explorer.shared_search import SharedSearches
from attendo.serve.explorer.tasks import edit_model, parse_edits, parse_heads
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel
from attendo.text_model.results import Hypothesis

TOKENS = 30
SAMPLE = {"kind": "sample", "seed": 3, "temperature": 1.5}
OTHER_REQUESTS = {
    "text": {"text": "the cat sat"},
    "heads": {"heads": {"decoder.0.cross": {"0": 0.0}}},
    "edits": {"edits": [{"kind": "off", "module": "decoder.1"}]},
    "padding": {"edits": [{"kind": "padding", "text": f"{TEXT} the small cat", "masked": False}]},
    "kind": {"decoder": {"kind": "beam", "beam": 3}},
    "seed": {"decoder": {**SAMPLE, "seed": 4}},
    "temperature": {"decoder": {**SAMPLE, "temperature": 0.5}},
    "max_length": {"decoder": {"kind": "greedy", "max_length": 2}},
    "prefix": {"prefix": ["猫"]},
}


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedSearches]:
    """Searches of this test only. At its end none is left."""
    found = SharedSearches()
    monkeypatch.setattr(search_module, "_SEARCHES", found)
    yield found
    assert len(found) == 0


@pytest.fixture(scope="module")
def model() -> TextModel:
    return long_model(TOKENS)


class Reader:
    """A search that is read one token at a time."""

    def __init__(self, model: TextModel, **fields: Any) -> None:
        request = AnswerRequest(**{"text": TEXT, **fields})
        heads, edits = parse_heads(model.network.config, request.heads), parse_edits(model, request)
        self.search = ExplorerSearch(edit_model(model, heads, edits), request, 256)
        self.steps = self.search.stream(self.search.resolve_prefix(request.prefix or ()))
        self.text, self.ended = "", False

    def step(self) -> None:
        try:
            self.text += next(self.steps)
        except StopIteration:
            self.ended = True

    def finish(self) -> tuple[Hypothesis, ...]:
        while not self.ended:
            self.step()
        assert self.text == self.search.hypotheses[0].text
        return self.search.hypotheses


def read_in_turns(*readers: Reader) -> None:
    while not all(reader.ended for reader in readers):
        for reader in readers:
            reader.step()


@contextmanager
def count_steps(model: TextModel) -> Iterator[list[int]]:
    """The lengths of the rows that the decoder read, one for each pass."""
    lengths: list[int] = []
    hook = model.network.decoder[0].feed_forward.register_forward_hook(
        lambda _, arguments, __: lengths.append(arguments[0].size(1))
    )
    try:
        yield lengths
    finally:
        hook.remove()


@pytest.mark.parametrize("first_steps", [0, 1, TOKENS - 1])
@pytest.mark.parametrize("fields", [{}, {"decoder": {"kind": "beam", "beam": 3, "n_best": 3}}, {"decoder": SAMPLE}])
def test_readers_of_one_search_get_its_output(model: TextModel, fields: dict[str, Any], first_steps: int) -> None:
    with count_steps(model) as alone:
        expected = Reader(model, **fields).finish()
    first, second = Reader(model, **fields), Reader(model, **fields)
    with count_steps(model) as together:
        for _ in range(first_steps):
            first.step()
        read_in_turns(first, second)
    assert first.finish() == second.finish() == expected
    assert together == alone


def test_view_of_the_output_needs_no_search_of_its_own(model: TextModel) -> None:
    with count_steps(model) as alone:
        Reader(model).finish()
    reader = Reader(model)
    pair = InspectedPair.build(model, TargetRequest(text=TEXT), ServeSettings())
    with count_steps(model) as steps:
        reader.step()
        try:
            while True:
                next(pair)
        except StopIteration as end:
            subject = end.value
    assert steps == alone
    assert subject.target == reader.finish()[0].ids


@pytest.mark.parametrize("name", OTHER_REQUESTS)
def test_other_requests_have_searches_of_their_own(name: str) -> None:
    model = random_model()
    usual = {"decoder": SAMPLE} if name in ("seed", "temperature") else {}
    expected, other_expected = Reader(model, **usual).finish(), Reader(model, **OTHER_REQUESTS[name]).finish()
    first, other = Reader(model, **usual), Reader(model, **OTHER_REQUESTS[name])
    read_in_turns(first, other)
    assert (first.finish(), other.finish()) == (expected, other_expected)
    assert expected != other_expected


def test_other_models_have_searches_of_their_own() -> None:
    models = [random_model(seed) for seed in (1, 2)]
    expected = [Reader(model).finish() for model in models]
    readers = [Reader(model) for model in models]
    read_in_turns(*readers)
    assert [reader.finish() for reader in readers] == expected
    assert expected[0] != expected[1]


def test_finished_search_is_not_used_after_the_weights_have_changed() -> None:
    model, other = random_model(1), random_model(2)
    before = Reader(model).finish()
    with torch.no_grad():
        model.network.load_state_dict(other.network.state_dict())
    assert Reader(model).finish() == Reader(other).finish() != before


def test_cancelled_reader_leaves_the_search_to_the_others(model: TextModel, searches: SharedSearches) -> None:
    with count_steps(model) as alone:
        expected = Reader(model).finish()
    first, second = Reader(model), Reader(model)
    first.step()
    second.step()
    first.steps.close()
    with count_steps(model) as rest:
        assert second.finish() == expected
    assert rest == alone[1:]
    third = Reader(model)
    third.step()
    assert len(searches) == 1
    third.steps.close()
    assert len(searches) == 0


def test_error_of_one_reader_is_not_that_of_the_others(model: TextModel) -> None:
    """A request that is cancelled before a decoding step raises within the search."""

    def cancel() -> None:
        raise TimeoutError

    expected = Reader(model).finish()
    first, second = Reader(model), Reader(model)
    for _ in range(3):
        first.step()
        second.step()
    with step_hook(cancel), pytest.raises(TimeoutError):
        first.finish()
    assert second.finish() == expected


def test_concurrent_requests_of_a_server_get_their_own_outputs(model: TextModel) -> None:
    server = SmallServer(ModelSpec("long", model))
    requests: list[tuple[str, dict[str, Any]]] = [
        (path, {"decoder": decoder, **fields})
        for decoder in ({"kind": "greedy"}, SAMPLE)
        for fields in ({}, {"heads": {"decoder.0.cross": {"0": 0.0}}})
        for path in ("answer", "forward", "steps")
    ]
    expected = [server.post(path, **fields) for path, fields in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        found = list(pool.map(lambda request: server.post(request[0], **request[1]), requests))
    assert found == expected
