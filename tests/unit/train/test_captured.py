"""Recorded passes: the order in which things happen, and that the same is learned in every way."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from learning import BATCH, BOTH, OTHER, learner

from attendo.data.batch import Batch
from attendo.train import compilation
from attendo.train.compilation import CudaGraphedPass
from attendo.train.update import Updater


class Pretended:
    """As a GPU does it, on a CPU."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.events: list[str] = []
        self.recording = False

    def run(self, work: Callable[[], None]) -> None:
        self.events.append("run")
        work()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.events.append("record")
        self.recording = True
        work()
        self.recording = False
        return partial(self._replay, work)

    def _replay(self, work: Callable[[], None]) -> None:
        self.events.append("replay")
        work()


@pytest.fixture(autouse=True)
def from_the_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_WARMUP_PASSES", 0)


def capturing() -> tuple[Updater, Pretended]:
    """As a learner on a GPU is made. While something is recorded nothing is done, and nothing can be compiled."""
    made, recorder = learner(), Pretended()
    compiled: set[tuple[int, ...]] = set()

    def learn(batch: Batch) -> None:
        shape = (*batch.source_ids.shape, *batch.target_ids.shape)
        if recorder.recording:
            assert shape in compiled
            return
        compiled.add(shape)
        made._forward_backward(batch)

    made.uses_cuda_graphs, made._run_pass = True, CudaGraphedPass(learn, recorder)
    for weight in made.network.parameters():
        weight.grad = torch.zeros_like(weight)
    return made, recorder


def learned_alike(one: Updater, other: Updater) -> bool:
    pairs = zip(one.network.parameters(), other.network.parameters(), strict=True)
    return all(torch.equal(here, there) for here, there in pairs)


def test_a_shape_runs_once_before_it_is_recorded_and_is_replayed_from_then_on() -> None:
    made, recorder = capturing()
    for batch in (BATCH, BATCH, OTHER, BATCH, OTHER, OTHER):
        made.update([batch])
    assert recorder.events == ["run", "record", "replay", "run", "replay", "record", "replay", "replay"]


def test_every_pass_is_learned_from_once_however_it_is_done() -> None:
    """Bit by bit what is learned without recordings, after every update."""
    (made, recorder), plain = capturing(), learner()
    for batches in ([BATCH], [OTHER, BATCH], [BOTH], [BATCH, BATCH], [OTHER, BOTH], [OTHER]):
        ours, theirs = made.update(batches), plain.update(batches)
        assert torch.equal(ours.loss, theirs.loss)
        assert torch.equal(ours.norm, theirs.norm)
        assert learned_alike(made, plain)
    assert {*recorder.events} == {"run", "record", "replay"}


def test_a_batch_is_not_changed_by_those_that_come_after_it() -> None:
    made, _ = capturing()
    first = BATCH.repeat(1)
    turned = Batch(BATCH.source_ids.flip(0), BATCH.source_mask, BATCH.target_ids.flip(0), BATCH.labels.flip(0))
    for batch in (first, first, turned):
        made.update([batch])
    assert torch.equal(first.labels, BATCH.labels)
    assert torch.equal(first.source_ids, BATCH.source_ids)


def test_the_first_passes_and_shapes_beyond_the_most_run_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_WARMUP_PASSES", 3)
    monkeypatch.setattr(compilation, "_MAX_GRAPHS", 1)
    made, recorder = capturing()
    for batch in (BATCH, BATCH, OTHER, BATCH, OTHER, OTHER, BATCH):
        made.update([batch])
    assert recorder.events == ["run", "run", "run", "record", "replay", "run", "run", "replay"]
