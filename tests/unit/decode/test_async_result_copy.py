"""Copies of finished results from the slots of a static batch."""

import torch
from search_rows import make_limits
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.frontier import Frontier, map_tensors, pack, unpack
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.static_batch import AsyncResultCopy


def make_frontier() -> Frontier:
    """A frontier with random values in tensors of every dtype."""
    limits = make_limits(torch.tensor([3, 9, 5, 7]), prefix=[(5,), (), (6, 7), ()])
    started = Beam(3).start(limits).hypotheses
    generator = torch.Generator().manual_seed(1)

    return map_tensors(started, lambda each: torch.randint(0, 2, each.shape, generator=generator).to(each.dtype))


def tensors(value: Frontier) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    map_tensors(value, lambda each: found.setdefault(len(found), each))
    return [*found.values()]


def same(one: Frontier, other: Frontier) -> bool:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def requests_in_slots(slots: list[int]) -> dict[int, DecodeRequest]:
    return {slot: DecodeRequest(10 + slot, (5,), 3) for slot in slots}


def request_ids(answers: FinishedBatch) -> list[int]:
    return [request.request_id for request in answers.requests]


def test_packing_and_unpacking_a_frontier_is_lossless() -> None:
    before = make_frontier()
    assert len({each.dtype for each in tensors(before)}) == 3
    assert same(unpack(pack(before), before), before)


def test_results_are_those_of_the_enqueued_slots() -> None:
    for buffered in (False, True):
        frontier = make_frontier()
        copier = AsyncResultCopy(frontier, buffered=buffered)
        copier.enqueue(requests_in_slots([2, 0]))
        (answers,) = copier.pop_completed()
        assert request_ids(answers) == [12, 10]
        assert same(answers.hypotheses, frontier.select_sentences(torch.tensor([2, 0])))
        assert not list(copier.pop_completed(wait_for_all=True))


def test_a_buffered_copy_ignores_later_writes_to_its_slot() -> None:
    frontier = make_frontier()
    copier, expected = AsyncResultCopy(frontier, buffered=True), frontier.select_sentences(torch.tensor([1]))
    copier.enqueue(requests_in_slots([1]))
    frontier.ids.zero_()
    (answers,) = copier.pop_completed()
    assert same(answers.hypotheses, expected)


def test_a_result_is_unchanged_by_later_copies() -> None:
    frontier = make_frontier()
    copier, expected = AsyncResultCopy(frontier, buffered=True), frontier.select_sentences(torch.tensor([1]))
    copier.enqueue(requests_in_slots([1]))
    (answers,) = copier.pop_completed()
    for _ in range(5):
        frontier.ids.add_(1)
        copier.enqueue(requests_in_slots([0]))
        list(copier.pop_completed())
    assert same(answers.hypotheses, expected)


def test_pending_results_can_be_cancelled() -> None:
    copier = AsyncResultCopy(make_frontier())
    copier.enqueue(requests_in_slots([0]))
    assert copier.busy
    copier.cancel()
    assert not copier.busy
    assert not list(copier.pop_completed(wait_for_all=True))


def test_single_results_of_a_pending_copy_can_be_cancelled() -> None:
    frontier = make_frontier()
    copier = AsyncResultCopy(frontier, buffered=True)
    copier.enqueue(requests_in_slots([0, 1, 3]))
    copier.cancel([11])
    (answers,) = copier.pop_completed()
    assert request_ids(answers) == [10, 13]
    assert same(answers.hypotheses, frontier.select_sentences(torch.tensor([0, 3])))
