"""A learner and its standing, taken apart into named tensors and put together again."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attendo.errors import ModelError
from attendo.store import misfits
from attendo.train.checkpoint import Snapshot
from attendo.train.learner import Learner
from attendo.train.optimizer import expected_tensors, load_optimizer_tensors, optimizer_tensors
from attendo.train.randomness import random_tensors, restore_random
from attendo.train.standing import Standing


def take_snapshot(learner: Learner, standing: Standing, facts: dict[str, Any]) -> Snapshot:
    holding = learner.holding
    return Snapshot(
        step=learner.step,
        model=holding.gathered({name: weight.detach() for name, weight in holding.network.named_parameters()}),
        optimizer=holding.gathered({**optimizer_tensors(learner.optimizer, holding.network), **_own(learner)}),
        random=random_tensors(learner.device, learner.world),
        state=standing.to_json(),
        facts=facts,
    )


def restore(learner: Learner, snapshot: Snapshot) -> tuple[Standing, bool]:
    """Where the run stood, and whether its sources of chance go on too. Tensors that do not fit are a `ModelError`."""
    holding = learner.holding
    weights = dict(holding.network.named_parameters())
    _check("model.safetensors", weights, snapshot.model)
    moments = expected_tensors(holding.network) if snapshot.step else {}
    _check("optimizer.safetensors", {**moments, **_own(learner)}, snapshot.optimizer)
    model, optimizer = holding.parts(snapshot.model), holding.parts(snapshot.optimizer)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(model[name])
    if moments:
        load_optimizer_tensors(learner.optimizer, holding.network, optimizer)
    for name, tensor in _own(learner).items():
        tensor.copy_(optimizer[name])
    learner.step = snapshot.step
    exact = restore_random(snapshot.random, learner.device, learner.world)
    return Standing.from_json(snapshot.state), exact


def averaged_weights(snapshot: Snapshot) -> dict[str, Tensor]:
    """The weights that a model made of this checkpoint has: the moving average's, where there is one."""
    prefix = "average/"
    average = {name.removeprefix(prefix): t for name, t in snapshot.optimizer.items() if name.startswith(prefix)}
    return average or snapshot.model


def _own(learner: Learner) -> dict[str, Tensor]:
    """What the learner keeps beside the optimizer; the tensors themselves."""
    average = {} if learner.average is None else learner.average.weights
    return {
        "loss_scale": learner.scale,
        "good_steps": learner.good_steps,
        **{f"average/{name}": weight for name, weight in average.items()},
    }


def _check(file: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    if faults := misfits(expected, found):
        shown = "; ".join(faults[:5])
        raise ModelError("checkpoint_does_not_fit", file=file, faults=shown, count=len(faults))
