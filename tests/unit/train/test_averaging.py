"""The mean of several checkpoints' weights."""

from pathlib import Path

import pytest
import torch
from error_codes import has_code

from attendo.errors import ModelError, UsageError
from attendo.train.checkpoint import Checkpoints, Snapshot, average_checkpoints


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path)


def save(checkpoints: Checkpoints, step: int, weight: torch.Tensor, average: torch.Tensor | None = None) -> None:
    optimizer = {"loss_scale": torch.ones(())} | ({} if average is None else {"average/w": average})
    checkpoints.save(Snapshot(step, {"w": weight}, optimizer, {"r": torch.zeros(1)}, {}))


def test_averaging_gives_the_elementwise_mean(checkpoints: Checkpoints, generator: torch.Generator) -> None:
    weights = [torch.randn(4, 3, generator=generator) for _ in range(3)]
    for step, weight in enumerate(weights, start=1):
        save(checkpoints, step, weight)
    mean = average_checkpoints(checkpoints, [1, 2, 3])["w"]
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, torch.stack(weights).mean(0))
    assert torch.equal(average_checkpoints(checkpoints, [2])["w"], weights[1])


def test_averaging_keeps_small_differences_of_large_weights(checkpoints: Checkpoints) -> None:
    for step, value in enumerate((16777216.0, 1.0, 1.0), start=1):
        save(checkpoints, step, torch.tensor([value]))
    expected = torch.tensor([(16777216.0 + 2.0) / 3])
    assert torch.equal(average_checkpoints(checkpoints, [1, 2, 3])["w"], expected)


def test_averaging_uses_ema_weights_if_present(checkpoints: Checkpoints) -> None:
    for step in (1, 2):
        save(checkpoints, step, torch.zeros(2), torch.full((2,), float(step)))
    assert torch.equal(average_checkpoints(checkpoints, [1, 2])["w"], torch.full((2,), 1.5))


def test_a_damaged_checkpoint_is_skipped_if_warnings_are_collected(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3):
        save(checkpoints, step, torch.full((2,), float(step)))
    damaged = checkpoints.path(2) / "model.safetensors"
    damaged.write_bytes(b"nothing")
    with pytest.raises(ModelError, check=has_code("file_size_mismatch", path=damaged)):
        average_checkpoints(checkpoints, [1, 2, 3])
    warnings: list[str] = []
    assert torch.equal(average_checkpoints(checkpoints, [1, 2, 3], warnings)["w"], torch.full((2,), 2.0))
    assert len(warnings) == 1
    assert "step-00000002" in warnings[0]


def test_checkpoints_that_do_not_fit_are_errors(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, torch.zeros(2))
    save(checkpoints, 2, torch.zeros(3))
    error = has_code("checkpoints_not_averageable", path=checkpoints.path(2), first=checkpoints.path(1))
    with pytest.raises(UsageError, check=error):
        average_checkpoints(checkpoints, [1, 2])
    with pytest.raises(UsageError, check=has_code("no_checkpoint_to_average")):
        average_checkpoints(checkpoints, [])
    with pytest.raises(ModelError, match="step-00000009"):
        average_checkpoints(checkpoints, [9])
