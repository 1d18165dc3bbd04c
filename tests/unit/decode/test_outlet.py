"""How answers leave slots."""

import torch
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.frontier import Asked, Frontier, as_bytes, changed, from_bytes
from attendo.decode.requests import Answers, Request
from attendo.decode.static_batch import Outlet


def frontier() -> Frontier:
    """Tensors of all kinds, each with numbers of its own."""
    asked = Asked.of(torch.tensor([3, 9, 5, 7]), prefix=[(5,), (), (6, 7), ()])
    started = Beam(3).start(asked).hypotheses
    generator = torch.Generator().manual_seed(1)

    return changed(started, lambda each: torch.randint(0, 2, each.shape, generator=generator).to(each.dtype))


def tensors(value: Frontier) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    changed(value, lambda each: found.setdefault(len(found), each))
    return [*found.values()]


def same(one: Frontier, other: Frontier) -> bool:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def sent(slots: list[int]) -> dict[int, Request]:
    return {slot: Request(10 + slot, (5,), 3) for slot in slots}


def numbers(answers: Answers) -> list[int]:
    return [request.number for request in answers.requests]


def test_a_frontier_as_bytes_comes_back_as_it_was() -> None:
    before = frontier()
    assert len({each.dtype for each in tensors(before)}) == 3
    assert same(from_bytes(as_bytes(before), before), before)


def test_answers_are_those_of_the_slots_that_were_sent() -> None:
    for travel in (False, True):
        here = frontier()
        outlet = Outlet(here, travel=travel)
        outlet.send(sent([2, 0]))
        (answers,) = outlet.arrivals()
        assert numbers(answers) == [12, 10]
        assert same(answers.hypotheses, here.keep(torch.tensor([2, 0])))
        assert not list(outlet.arrivals(all_of_them=True))


def test_what_travels_is_not_reached_by_what_comes_into_its_slot() -> None:
    here = frontier()
    outlet, expected = Outlet(here, travel=True), here.keep(torch.tensor([1]))
    outlet.send(sent([1]))
    here.ids.zero_()
    (answers,) = outlet.arrivals()
    assert same(answers.hypotheses, expected)


def test_an_answer_stays_when_the_next_ones_travel() -> None:
    here = frontier()
    outlet, expected = Outlet(here, travel=True), here.keep(torch.tensor([1]))
    outlet.send(sent([1]))
    (answers,) = outlet.arrivals()
    for _ in range(5):
        here.ids.add_(1)
        outlet.send(sent([0]))
        list(outlet.arrivals())
    assert same(answers.hypotheses, expected)


def test_what_nobody_took_can_be_forgotten() -> None:
    outlet = Outlet(frontier())
    outlet.send(sent([0]))
    assert outlet.busy
    outlet.forget()
    assert not outlet.busy
    assert not list(outlet.arrivals(all_of_them=True))


def test_of_some_that_travel_together_those_can_be_forgotten_that_nobody_waits_for() -> None:
    here = frontier()
    outlet = Outlet(here, travel=True)
    outlet.send(sent([0, 1, 3]))
    outlet.forget([11])
    (answers,) = outlet.arrivals()
    assert numbers(answers) == [10, 13]
    assert same(answers.hypotheses, here.keep(torch.tensor([0, 3])))
