"""Activation checkpointing changes no bit of a run, and stores less."""

from typing import Any

import pytest
import torch
from learning import BATCH, OTHER, config, make_updater

from attendo.train.activation_checkpointing import keep_activations
from attendo.train.checkpoint import TrainState, take_snapshot
from attendo.train.update import Updater


def train(updater: Updater) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    for _ in range(3):
        updater.update([BATCH, OTHER])
    snapshot = take_snapshot(updater, TrainState(), {})
    return {**snapshot.model, **snapshot.optimizer}


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        ({"tie": "all"}, {"r_drop": 1.0}),
        ({"norm": "post", "positions": "rotary", "num_decoder_layers": 3}, {}),
        ({"positions": "relative", "num_encoder_layers": 2}, {"precision": "bf16"}),
        ({"tie": "all"}, {"scheduled_sampling": "confidence", "sampling_start": 0.0}),
    ],
    ids=["tied", "post-norm", "relative", "two passes"],
)
def test_weights_and_moments_are_equal_with_dropout(sizes: dict[str, Any], changes: dict[str, Any]) -> None:
    expected = train(make_updater(config(**changes), dropout=0.2, **sizes))
    found = train(make_updater(config(**changes, activation_checkpointing=True), dropout=0.2, **sizes))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_blocks_are_computed_again_only_for_gradients() -> None:
    updater = make_updater(config(activation_checkpointing=True), num_encoder_layers=2)
    calls: list[int] = []
    for block in (*updater.network.encoder, *updater.network.decoder):
        block.feed_forward.register_forward_pre_hook(lambda *_: calls.append(1))
    updater.try_batch(BATCH)
    assert len(calls) == 2 * 3
    calls.clear()
    with torch.no_grad():
        updater.compute_loss(BATCH)
    assert len(calls) == 3
    calls.clear()
    with keep_activations():
        updater.try_batch(BATCH)
    assert len(calls) == 3
