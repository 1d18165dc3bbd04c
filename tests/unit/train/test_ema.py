"""The exponential moving average of weights, compared with a plain loop."""

from contextlib import suppress

import pytest
import torch
from learning import BATCH, config, make_updater
from torch import nn

from attendo.train.optimizer import EMA

NO, YES = torch.tensor(0.0), torch.tensor(1.0)


def test_ema_equals_a_plain_loop() -> None:
    network = nn.Linear(3, 2)
    average = EMA(network, decay=0.7)
    expected = network.weight.flatten().tolist()
    for step in range(1, 40):
        with torch.no_grad():
            network.weight.add_(torch.randn(2, 3, generator=torch.Generator().manual_seed(step)))
        average.update(step, NO)
        decay = min(0.7, (1 + step) / (10 + step))
        now = network.weight.flatten().tolist()
        expected = [decay * old + (1 - decay) * new for old, new in zip(expected, now, strict=True)]
    assert average.weights["weight"].flatten().tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_skipped_step_does_not_change_the_ema() -> None:
    network = nn.Linear(3, 2)
    average = EMA(network, decay=0.9)
    with torch.no_grad():
        network.weight.mul_(2)
    before = average.weights["weight"].clone()
    average.update(1, YES)
    assert torch.equal(average.weights["weight"], before)
    average.update(1, NO)
    assert not torch.equal(average.weights["weight"], before)


def test_eval_weights_swaps_in_the_ema_and_restores_the_weights() -> None:
    trained = make_updater(config(ema=0.5))
    for _ in range(3):
        trained.update([BATCH])
    assert trained.ema is not None
    before = {name: weight.detach().clone() for name, weight in trained.network.named_parameters()}
    with suppress(RuntimeError), trained.eval_weights():
        inside = {name: weight.detach().clone() for name, weight in trained.network.named_parameters()}
        raise RuntimeError
    assert all(torch.equal(inside[name], trained.ema.weights[name]) for name in inside)
    assert not any(torch.equal(inside[name], before[name]) for name in inside if inside[name].dim() > 1)
    assert all(torch.equal(weight, before[name]) for name, weight in trained.network.named_parameters())


def test_finalize_keeps_the_ema_weights() -> None:
    trained = make_updater(config(ema=0.5))
    trained.update([BATCH])
    trained.finalize()
    assert trained.ema is not None
    assert all(torch.equal(weight, trained.ema.weights[name]) for name, weight in trained.network.named_parameters())


def test_without_ema_eval_weights_are_the_trained_weights() -> None:
    trained = make_updater(config())
    assert trained.ema is None
    before = [weight.detach().clone() for weight in trained.network.parameters()]
    with trained.eval_weights():
        assert all(map(torch.equal, before, trained.network.parameters()))
