"""CUDA graphs: the order of warm-up, capture and replay, and equal updates."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from learning import BATCH, BOTH, OTHER, make_updater

from attendo.data.batch import Batch
from attendo.train import compilation
from attendo.train.compilation import CudaGraphedPass
from attendo.train.update import Updater


class FakeRecorder:
    """A CPU stand-in for graph capture on a GPU."""

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
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_WARMUP_PASSES", 0)


def capturing_updater() -> tuple[Updater, FakeRecorder]:
    """An updater as on a GPU. During capture nothing is executed, and nothing can be compiled."""
    updater, recorder = make_updater(), FakeRecorder()
    compiled: set[tuple[int, ...]] = set()

    def run_pass(batch: Batch) -> None:
        shape = (*batch.source_ids.shape, *batch.target_ids.shape)
        if recorder.recording:
            assert shape in compiled
            return
        compiled.add(shape)
        updater._forward_backward(batch)

    updater.uses_cuda_graphs, updater._run_pass = True, CudaGraphedPass(run_pass, recorder)
    for weight in updater.network.parameters():
        weight.grad = torch.zeros_like(weight)
    return updater, recorder


def have_equal_weights(one: Updater, other: Updater) -> bool:
    pairs = zip(one.network.parameters(), other.network.parameters(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def test_a_shape_runs_once_before_capture_and_is_then_replayed() -> None:
    updater, recorder = capturing_updater()
    for batch in (BATCH, BATCH, OTHER, BATCH, OTHER, OTHER):
        updater.update([batch])
    assert recorder.events == ["run", "record", "replay", "run", "replay", "record", "replay", "replay"]


def test_captured_updates_equal_plain_updates() -> None:
    """The weights are bitwise equal after every update."""
    (updater, recorder), plain = capturing_updater(), make_updater()
    for batches in ([BATCH], [OTHER, BATCH], [BOTH], [BATCH, BATCH], [OTHER, BOTH], [OTHER]):
        captured_update, plain_update = updater.update(batches), plain.update(batches)
        assert torch.equal(captured_update.loss, plain_update.loss)
        assert torch.equal(captured_update.norm, plain_update.norm)
        assert have_equal_weights(updater, plain)
    assert {*recorder.events} == {"run", "record", "replay"}


def test_later_batches_do_not_change_an_earlier_one() -> None:
    updater, _ = capturing_updater()
    first = BATCH.repeat(1)
    flipped = Batch(BATCH.source_ids.flip(0), BATCH.source_mask, BATCH.target_ids.flip(0), BATCH.labels.flip(0))
    for batch in (first, first, flipped):
        updater.update([batch])
    assert torch.equal(first.labels, BATCH.labels)
    assert torch.equal(first.source_ids, BATCH.source_ids)


def test_warm_up_passes_and_shapes_over_the_limit_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_WARMUP_PASSES", 3)
    monkeypatch.setattr(compilation, "_MAX_GRAPHS", 1)
    updater, recorder = capturing_updater()
    for batch in (BATCH, BATCH, OTHER, BATCH, OTHER, OTHER, BATCH):
        updater.update([batch])
    assert recorder.events == ["run", "run", "run", "record", "replay", "run", "run", "replay"]
