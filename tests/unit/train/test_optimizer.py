"""The optimizer, against torch's own step on the mean loss with clipped gradients."""

from collections.abc import Sequence

import pytest
import torch
from learning import BATCH, OTHER, config, learner
from torch import nn

from attendo.data.batch import Batch
from attendo.train.loss import cross_entropy_sum
from attendo.train.optimizer import (
    expected_optimizer_tensors,
    learning_rate,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
)
from attendo.train.update import Updater


def plain_step(network: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], clip: float) -> float:
    """As any tutorial writes it."""
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
def test_updates_are_those_of_torchs_own_optimizer(kind: str, clip: float) -> None:
    settings = config(optimizer=kind, weight_decay=0.1, clip_norm=clip, epsilon=1e-4)
    ours, theirs = learner(settings), learner(settings).network
    groups = [
        {"params": [weight for weight in theirs.parameters() if weight.dim() > 1], "weight_decay": 0.1},
        {"params": [weight for weight in theirs.parameters() if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    optimizer = plain(groups, betas=(settings.beta1, settings.beta2), eps=settings.epsilon)
    for step in range(1, 5):
        update = ours.update([BATCH, OTHER])
        set_rate(optimizer, learning_rate(step, settings, 16))
        norm = plain_step(theirs, optimizer, [BATCH, OTHER], clip)
        assert update.lr == optimizer.param_groups[0]["lr"]
        assert not clip or update.norm.item() == pytest.approx(norm, rel=1e-4)
    for (name, one), other in zip(ours.network.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_vectors_do_not_decay_and_matrices_do() -> None:
    network = learner().network
    groups = make_optimizer(network, config(weight_decay=0.5)).param_groups
    decaying = {id(weight): group["weight_decay"] for group in groups for weight in group["params"]}
    assert {weight.dim() > 1 for weight in network.parameters()} == {True, False}
    for name, weight in network.named_parameters():
        assert decaying[id(weight)] == (0.5 if weight.dim() > 1 else 0.0), name


def test_its_memory_is_named_after_the_weights_and_goes_into_another_one() -> None:
    first = updated(learner(), 2)
    tensors = optimizer_tensors(first.optimizer, first.network)
    expected = expected_optimizer_tensors(first.network)
    assert tensors.keys() == expected.keys()
    assert all(tensors[name].shape == expected[name].shape for name in tensors)
    assert {float(tensor) for name, tensor in tensors.items() if name.startswith("step/")} == {2.0}
    second = learner()
    assert optimizer_tensors(second.optimizer, second.network) == {}
    second.network.load_state_dict(first.network.state_dict())
    load_optimizer_tensors(second.optimizer, second.network, tensors)
    second.step = first.step
    for each in (first, second):
        each.update([OTHER])
    for one, other in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_loaded_tensors_are_copies() -> None:
    first = updated(learner(), 1)
    kept = {name: tensor.clone() for name, tensor in optimizer_tensors(first.optimizer, first.network).items()}
    second = learner()
    load_optimizer_tensors(second.optimizer, second.network, kept)
    before = {name: tensor.clone() for name, tensor in kept.items()}
    second.update([BATCH])
    assert all(torch.equal(kept[name], before[name]) for name in kept)


def updated(each: Updater, times: int) -> Updater:
    for _ in range(times):
        each.update([BATCH])
    return each
