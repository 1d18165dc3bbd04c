"""Garbage collection is off while a CUDA graph is captured."""

import gc
from contextlib import nullcontext

import pytest
import torch

from attendo.nn.cuda_graph import capture_graph


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **options: nullcontext())


@pytest.mark.usefixtures("without_gpu")
def test_garbage_collection_is_off_during_capture() -> None:
    assert gc.isenabled()
    with capture_graph(object()):
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("without_gpu")
def test_a_failed_capture_enables_the_collector_again() -> None:
    with pytest.raises(ZeroDivisionError), capture_graph(object()):
        1 / 0  # noqa: B018
    assert gc.isenabled()


@pytest.mark.usefixtures("without_gpu")
def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with capture_graph(object()):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
