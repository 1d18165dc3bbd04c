"""How answers leave slots."""

import torch
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.frontier import Frontier, RowLimits, map_tensors, pack, unpack
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.static_batch import AsyncResultCopy


def frontier() -> Frontier:
    """Tensors of all kinds, each with numbers of its own."""
    asked = RowLimits.make(torch.tensor([3, 9, 5, 7]), prefix=[(5,), (), (6, 7), ()])
    started = Beam(3).start(asked).hypotheses
    generator = torch.Generator().manual_seed(1)

    return map_tensors(started, lambda each: torch.randint(0, 2, each.shape, generator=generator).to(each.dtype))


def tensors(value: Frontier) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    map_tensors(value, lambda each: found.setdefault(len(found), each))
    return [*found.values()]


def same(one: Frontier, other: Frontier) -> bool:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def sent(slots: list[int]) -> dict[int, DecodeRequest]:
    return {slot: DecodeRequest(10 + slot, (5,), 3) for slot in slots}


def numbers(answers: FinishedBatch) -> list[int]:
    return [request.request_id for request in answers.requests]


def test_a_frontier_as_bytes_comes_back_as_it_was() -> None:
    before = frontier()
    assert len({each.dtype for each in tensors(before)}) == 3
    assert same(unpack(pack(before), before), before)


def test_answers_are_those_of_the_slots_that_were_sent() -> None:
    for travel in (False, True):
        here = frontier()
        outlet = AsyncResultCopy(here, buffered=travel)
        outlet.enqueue(sent([2, 0]))
        (answers,) = outlet.completed()
        assert numbers(answers) == [12, 10]
        assert same(answers.hypotheses, here.select_sentences(torch.tensor([2, 0])))
        assert not list(outlet.completed(wait_for_all=True))


def test_what_travels_is_not_reached_by_what_comes_into_its_slot() -> None:
    here = frontier()
    outlet, expected = AsyncResultCopy(here, buffered=True), here.select_sentences(torch.tensor([1]))
    outlet.enqueue(sent([1]))
    here.ids.zero_()
    (answers,) = outlet.completed()
    assert same(answers.hypotheses, expected)


def test_an_answer_stays_when_the_next_ones_travel() -> None:
    here = frontier()
    outlet, expected = AsyncResultCopy(here, buffered=True), here.select_sentences(torch.tensor([1]))
    outlet.enqueue(sent([1]))
    (answers,) = outlet.completed()
    for _ in range(5):
        here.ids.add_(1)
        outlet.enqueue(sent([0]))
        list(outlet.completed())
    assert same(answers.hypotheses, expected)


def test_what_nobody_took_can_be_forgotten() -> None:
    outlet = AsyncResultCopy(frontier())
    outlet.enqueue(sent([0]))
    assert outlet.busy
    outlet.cancel()
    assert not outlet.busy
    assert not list(outlet.completed(wait_for_all=True))


def test_of_some_that_travel_together_those_can_be_forgotten_that_nobody_waits_for() -> None:
    here = frontier()
    outlet = AsyncResultCopy(here, buffered=True)
    outlet.enqueue(sent([0, 1, 3]))
    outlet.cancel([11])
    (answers,) = outlet.completed()
    assert numbers(answers) == [10, 13]
    assert same(answers.hypotheses, here.select_sentences(torch.tensor([0, 3])))
