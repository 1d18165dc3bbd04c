"""The training loop as a stream of reports: the loop tells, others listen."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from attendo.data.batch import Batch
from attendo.errors import AttendoError, UsageError
from attendo.model.transformer import Transformer
from attendo.train.config import TrainConfig
from attendo.train.loss import summed_loss
from attendo.train.schedule import inverse_square_root


@dataclass(frozen=True)
class Step:
    """After one update: the loss of its batch, per target token."""

    step: int
    loss: float
    lr: float
    tokens: int  # target tokens of the batch
    positions: int  # what the batch cost, padding included
    seconds: float  # of training so far, validation not counted


@dataclass(frozen=True)
class Validation:
    """The loss on the validation batches, per target token, without label smoothing."""

    step: int
    loss: float


Report = Step | Validation


class DivergedError(AttendoError):
    """The loss is no longer a number."""


def train(
    network: Transformer, batches: Iterable[Batch], validation: Sequence[Batch], config: TrainConfig
) -> Iterator[Report]:
    """One `Step` an update; a `Validation` every so often and at the end. Stop listening and training stops."""
    device = next(network.parameters()).device
    optimizer = torch.optim.Adam(network.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    seconds = 0.0
    stream = iter(batches)
    for step in range(1, config.steps + 1):
        begin = time.perf_counter()
        lr = inverse_square_root(step, config.peak_lr, config.warmup)
        for group in optimizer.param_groups:
            group["lr"] = lr
        batch = next(stream, None)
        if batch is None:
            raise UsageError(f"the batches end before step {step} of {config.steps}: give more of them, or fewer steps")
        tokens = batch.tokens
        loss = _update(network.train(), optimizer, batch.to(device), tokens, config)
        if not math.isfinite(loss):
            raise DivergedError(f"the loss of step {step} is not a number: lower peak_lr, now {config.peak_lr}")
        seconds += time.perf_counter() - begin
        yield Step(step, loss, lr, tokens, batch.positions, seconds)
        if validation and (step % config.validate_every == 0 or step == config.steps):
            yield Validation(step, validation_loss(network, validation))


@torch.inference_mode()
def validation_loss(network: Transformer, batches: Sequence[Batch]) -> float:
    device = next(network.parameters()).device
    network.eval()
    total = sum(
        float(summed_loss(network(batch.source_ids, batch.target_ids, batch.source_mask), batch.labels))
        for batch in (each.to(device) for each in batches)
    )
    return total / sum(batch.tokens for batch in batches)


def _update(
    network: Transformer, optimizer: torch.optim.Optimizer, batch: Batch, tokens: int, config: TrainConfig
) -> float:
    """The loss per token. A batch whose loss or gradient is no number returns nan and leaves the weights alone."""
    logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
    loss = summed_loss(logits, batch.labels, config.label_smoothing) / tokens
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
    value = float(loss.detach())
    if not (math.isfinite(value) and math.isfinite(float(norm))):
        return math.nan
    optimizer.step()
    return value
