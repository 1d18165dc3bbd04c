"""Snapshots of an updater, and restoring them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from learning import BATCH, BOTH, OTHER, config, make_updater

from attendo.errors import ModelError
from attendo.train.checkpoint import Snapshot, TrainState, eval_weights, restore, take_snapshot


def make_snapshot(**changes: Any) -> Snapshot:
    trained = make_updater(config(**changes), dropout=0.2)
    torch.manual_seed(5)
    for _ in range(3):
        trained.update([BATCH, OTHER])
    snapshot = take_snapshot(trained, TrainState(tokens=42), {"known": True})
    copied = {
        part: {name: tensor.clone() for name, tensor in getattr(snapshot, part).items()}
        for part in ("model", "optimizer", "random")
    }
    return replace(snapshot, **copied)


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9}, {"precision": "fp16"}, {"optimizer": "adam"}])
def test_a_restored_updater_continues_identically(changes: dict[str, Any]) -> None:
    ends = []
    snapshot = make_snapshot(**changes)
    for seed in (1, 2):
        restored = make_updater(config(**changes), dropout=0.2)
        torch.manual_seed(seed)
        state, exact = restore(restored, snapshot)
        assert (restored.step, state, exact) == (3, TrainState(tokens=42), True)
        restored.update([BOTH])
        ends.append(take_snapshot(restored, state, {}))
    for part in ("model", "optimizer", "random"):
        one, other = getattr(ends[0], part), getattr(ends[1], part)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert ends[0].step == 4


def test_a_snapshot_before_the_first_step_can_be_restored() -> None:
    snapshot = take_snapshot(make_updater(), TrainState(), {})
    assert snapshot.optimizer.keys() == {"loss_scale", "good_steps"}
    again = make_updater()
    restore(again, snapshot)
    assert again.step == 0
    again.update([BATCH])


@pytest.mark.parametrize(
    ("made", "wanted", "error"),
    [
        ({}, {"d_ff": 32}, has_code("checkpoint_does_not_fit", file="model.safetensors")),
        ({}, {"num_decoder_layers": 2}, has_code("checkpoint_does_not_fit")),
        ({}, {"config": {"ema": 0.9}}, has_code("checkpoint_does_not_fit", file="optimizer.safetensors")),
        ({"ema": 0.9}, {}, has_code("checkpoint_does_not_fit")),
    ],
)
def test_tensors_that_do_not_fit_leave_the_updater_unchanged(
    made: dict[str, Any], wanted: dict[str, Any], error: ErrorCheck
) -> None:
    snapshot = make_snapshot(**made)
    again = make_updater(config(**wanted.pop("config", {})), **{"dropout": 0.2, **wanted})
    before = [weight.detach().clone() for weight in again.network.parameters()]
    with pytest.raises(ModelError, check=error) as caught:
        restore(again, snapshot)
    assert "\n" not in str(caught.value)
    assert all(map(torch.equal, before, again.network.parameters()))
    assert again.step == 0


def test_eval_weights_are_the_ema_weights_if_present() -> None:
    plain, averaged = make_snapshot(), make_snapshot(ema=0.5)
    assert eval_weights(plain) is plain.model
    found = eval_weights(averaged)
    assert found.keys() == averaged.model.keys()
    assert all(torch.equal(found[name], averaged.optimizer[f"average/{name}"]) for name in found)
    assert any(not torch.equal(found[name], averaged.model[name]) for name in found)
