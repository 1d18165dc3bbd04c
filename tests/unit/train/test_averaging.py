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


def test_it_is_the_mean_weight_by_weight(checkpoints: Checkpoints, generator: torch.Generator) -> None:
    drawn = [torch.randn(4, 3, generator=generator) for _ in range(3)]
    for step, weight in enumerate(drawn, start=1):
        save(checkpoints, step, weight)
    mean = average_checkpoints(checkpoints, [1, 2, 3])["w"]
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, torch.stack(drawn).mean(0))
    assert torch.equal(average_checkpoints(checkpoints, [2])["w"], drawn[1])


def test_small_differences_between_large_weights_are_not_lost(checkpoints: Checkpoints) -> None:
    for step, value in enumerate((16777216.0, 1.0, 1.0), start=1):
        save(checkpoints, step, torch.tensor([value]))
    expected = torch.tensor([(16777216.0 + 2.0) / 3])
    assert torch.equal(average_checkpoints(checkpoints, [1, 2, 3])["w"], expected)


def test_where_there_is_a_moving_average_its_weights_are_taken(checkpoints: Checkpoints) -> None:
    for step in (1, 2):
        save(checkpoints, step, torch.zeros(2), torch.full((2,), float(step)))
    assert torch.equal(average_checkpoints(checkpoints, [1, 2])["w"], torch.full((2,), 1.5))


def test_a_damaged_one_is_left_out_where_that_can_be_told(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3):
        save(checkpoints, step, torch.full((2,), float(step)))
    (checkpoints.path(2) / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, check=has_code("file_size_mismatch")):
        average_checkpoints(checkpoints, [1, 2, 3])
    told: list[str] = []
    assert torch.equal(average_checkpoints(checkpoints, [1, 2, 3], told)["w"], torch.full((2,), 2.0))
    assert len(told) == 1
    assert "step-00000002" in told[0]


def test_what_cannot_be_averaged_is_told(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, torch.zeros(2))
    save(checkpoints, 2, torch.zeros(3))
    with pytest.raises(UsageError, check=has_code("checkpoints_not_averageable")):
        average_checkpoints(checkpoints, [1, 2])
    with pytest.raises(UsageError, check=has_code("no_checkpoint_to_average")):
        average_checkpoints(checkpoints, [])
    with pytest.raises(ModelError, check=has_code("model_folder_not_found")):
        average_checkpoints(checkpoints, [9])
