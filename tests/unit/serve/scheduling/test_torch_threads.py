"""Exported models need little of torch and use one thread. Native models keep the configured number."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attendo.serve.scheduling.scheduler import torch_threads_for


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def model(backend: str) -> Any:
    return SimpleNamespace(
        device=torch.device("cpu"), backend=SimpleNamespace(name=backend, inference_mode=nullcontext)
    )


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("backend", "threads"), [("torch", 3), ("onnx", 1), ("ctranslate2", 1)])
def test_exported_models_use_one_torch_thread(backend: str, threads: int) -> None:
    with torch_threads_for(model(backend)):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_an_error_restores_the_thread_count() -> None:
    with pytest.raises(ValueError, match="wrong"), torch_threads_for(model("onnx")):
        raise ValueError("wrong")
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_other_threads_keep_their_count() -> None:
    found: list[int] = []
    with torch_threads_for(model("onnx")):
        pass
    other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert found == [3]
