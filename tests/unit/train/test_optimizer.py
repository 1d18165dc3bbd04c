"""The optimizer, compared with torch's own step on the mean loss with clipped gradients."""

from collections.abc import Sequence

import pytest
import torch
from learning import BATCH, OTHER, config, make_updater
from torch import nn

from attendo.data.batch import Batch
from attendo.train.loss import cross_entropy_sum
from attendo.train.optimizer import (
    learning_rate,
    load_optimizer_tensors,
    make_optimizer,
    make_optimizer_templates,
    optimizer_tensors,
    set_rate,
)
from attendo.train.update import Updater


def plain_step(network: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], clip: float) -> float:
    """One update as in a PyTorch tutorial."""
    optimizer.zero_grad()
    tokens = sum(batch.tokens for batch in batches)
    for batch in batches:
        logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
        (cross_entropy_sum(logits, batch.labels, 0.1) / tokens).backward()
    norm = nn.utils.clip_grad_norm_(network.parameters(), clip) if clip else 0.0
    optimizer.step()
    return float(norm)


@pytest.mark.parametrize("kind", ["adamw", "adam"])
@pytest.mark.parametrize("clip", [0.0, 0.05, 100.0])
def test_updates_match_the_torch_optimizer(kind: str, clip: float) -> None:
    settings = config(optimizer=kind, weight_decay=0.1, clip_norm=clip, epsilon=1e-4)
    updater, reference = make_updater(settings), make_updater(settings).network
    groups = [
        {"params": [weight for weight in reference.parameters() if weight.dim() > 1], "weight_decay": 0.1},
        {"params": [weight for weight in reference.parameters() if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    optimizer = plain(groups, betas=(settings.beta1, settings.beta2), eps=settings.epsilon)
    for step in range(1, 5):
        update = updater.update([BATCH, OTHER])
        set_rate(optimizer, learning_rate(step, settings, 16))
        norm = plain_step(reference, optimizer, [BATCH, OTHER], clip)
        assert update.lr == optimizer.param_groups[0]["lr"]
        assert not clip or update.norm.item() == pytest.approx(norm, rel=1e-4)
    for (name, one), other in zip(updater.network.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_weight_decay_applies_to_matrices_only() -> None:
    network = make_updater().network
    groups = make_optimizer(network, config(weight_decay=0.5)).param_groups
    decaying = {id(weight): group["weight_decay"] for group in groups for weight in group["params"]}
    assert {weight.dim() > 1 for weight in network.parameters()} == {True, False}
    for name, weight in network.named_parameters():
        assert decaying[id(weight)] == (0.5 if weight.dim() > 1 else 0.0), name


def test_optimizer_state_is_named_and_can_be_loaded() -> None:
    first = run_updates(make_updater(), 2)
    tensors = optimizer_tensors(first.optimizer, first.network)
    expected = make_optimizer_templates(first.network)
    assert tensors.keys() == expected.keys()
    assert all(tensors[name].shape == expected[name].shape for name in tensors)
    assert {float(tensor) for name, tensor in tensors.items() if name.startswith("step/")} == {2.0}
    second = make_updater()
    assert optimizer_tensors(second.optimizer, second.network) == {}
    second.network.load_state_dict(first.network.state_dict())
    load_optimizer_tensors(second.optimizer, second.network, tensors)
    second.step = first.step
    for each in (first, second):
        each.update([OTHER])
    for one, other in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_loaded_tensors_are_copies() -> None:
    first = run_updates(make_updater(), 1)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(first.optimizer, first.network).items()}
    second = make_updater()
    load_optimizer_tensors(second.optimizer, second.network, saved)
    before = {name: tensor.clone() for name, tensor in saved.items()}
    second.update([BATCH])
    assert all(torch.equal(saved[name], before[name]) for name in saved)


def run_updates(updater: Updater, times: int) -> Updater:
    for _ in range(times):
        updater.update([BATCH])
    return updater
