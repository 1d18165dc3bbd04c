"""Recording on a GPU: what must not happen meanwhile."""

import gc
from contextlib import nullcontext

import pytest
import torch

from attendo.nn.cuda_graph import capture_graph


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **options: nullcontext())


@pytest.mark.usefixtures("without_gpu")
def test_no_garbage_is_collected_while_work_is_recorded() -> None:
    assert gc.isenabled()
    with capture_graph(object()):
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("without_gpu")
def test_a_recording_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ZeroDivisionError), capture_graph(object()):
        1 / 0  # noqa: B018
    assert gc.isenabled()


@pytest.mark.usefixtures("without_gpu")
def test_who_collects_no_garbage_need_not_begin_to() -> None:
    gc.disable()
    try:
        with capture_graph(object()):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
