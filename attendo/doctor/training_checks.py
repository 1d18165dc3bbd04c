"""Checks of the warm-up, the initial loss, and the network's ability to overfit one batch."""

import math
from collections.abc import Sequence

import torch

from attendo.data.batch import Batch, Example
from attendo.doctor.finding import Finding
from attendo.doctor.network import compute_logits, make_batch
from attendo.errors import LocalizedText
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer
from attendo.text import PAD
from attendo.train.config import TrainConfig
from attendo.train.loss import cross_entropy_sum
from attendo.train.update import Updater

_TOLERANCE = 0.1  # allowed deviation of the first loss, as a share of ln V
_UNIT_LOGITS = 0.5  # logits of variance 1 raise the loss by this above ln V

MAX_WARM_UP_SHARE = 0.5  # share of the steps
OVERFIT_RATIO, PARTIAL_OVERFIT_RATIO = 0.1, 0.5  # shares of the first loss
# (learning rate × √d_model, steps) to try. Deep post-norm networks need the lower rate.
ATTEMPTS = ((0.02, 100), (0.002, 300))


def check_warm_up(train: TrainConfig) -> Finding:
    """Check that most steps are after the `train.warmup` steps of rising learning rate."""
    values = {"warmup": train.warmup, "steps": train.steps}
    found = LocalizedText("{warmup:,} of {steps:,} steps", warmup=train.warmup, steps=train.steps)
    if train.warmup <= MAX_WARM_UP_SHARE * train.steps or train.warmup <= 1:
        return Finding("warm-up", "ok", found, values=values, about="network")
    if train.warmup > train.steps:
        share = train.steps / train.warmup
        found += LocalizedText(": the learning rate ends at {share:.0%} of its peak", share=share)
    steps = max(1, train.steps // 10)
    advice = LocalizedText("lower train.warmup, to about {steps:,}, or raise train.steps", steps=steps)
    return Finding("warm-up", "warning", found, advice, values=values, about="network")


def check_first_loss(updater: Updater, pairs: Sequence[Example], trained: bool) -> Finding:
    """Check that an untrained network finds all tokens about equally likely: a loss near ln V.

    A tied embedding makes the network repeat its input. This is not a fault, so repeated tokens are excluded.
    """
    updater.network.eval()
    batch = make_batch(pairs, updater.network)
    loss, without_repeats = _compute_losses(updater, batch)
    even = math.log(updater.network.output.out_features)
    values = {"loss": loss, "ln_v": even, "without_repeats": without_repeats}
    if trained:
        found = LocalizedText(
            "{loss:.2f}, and {even:.2f} if all tokens were equally likely (ln V)", loss=loss, even=even
        )
        if loss < even:
            return Finding("first loss", "ok", found, values=values, about="network")
        advice = "the model to go on from knows nothing of this text: is it the right one, and the same task?"
        return Finding("first loss", "warning", found, advice, values=values, about="network")
    kinds = len(set(batch.labels.flatten().tolist()))
    off = _TOLERANCE * even + 2 * kinds**-0.5  # with few distinct tokens, the mean of their logits is noisy
    found = LocalizedText("{loss:.2f}, with all tokens equally likely {even:.2f} (ln V)", loss=loss, even=even)
    if updater.network.config.ties_output:
        found += LocalizedText(", without repeating the input {loss:.2f}", loss=without_repeats)
    if even - off <= without_repeats <= even + _UNIT_LOGITS + off:
        return Finding("first loss", "ok", found, values=values, about="network")
    return Finding(
        "first loss",
        "warning",
        found,
        "the first weights are too large or too small (model/initialise.py), or model.final_norm is missing",
        values=values,
        about="network",
    )


def check_overfitting(updater: Updater, pairs: Sequence[Example]) -> Finding:
    """Check that a copy of the network without dropout can memorise a few pairs."""
    for rate, steps in ATTEMPTS:
        losses = _overfit(updater, make_batch(pairs, updater.network), rate, steps)
        if losses[-1] <= OVERFIT_RATIO * losses[0]:
            break
    values = {"first": losses[0], "last": losses[-1], "steps": len(losses), "pairs": len(pairs)}
    found = LocalizedText(
        "{pairs} pairs, from a loss of {first:.2f} to {last:.2f} in {steps} steps",
        pairs=len(pairs),
        first=losses[0],
        last=losses[-1],
        steps=len(losses),
    )
    if losses[-1] <= OVERFIT_RATIO * losses[0]:
        return Finding("overfitting one batch", "ok", found, values=values, about="network")
    return Finding(
        "overfitting one batch",
        "warning" if losses[-1] <= PARTIAL_OVERFIT_RATIO * losses[0] else "fault",
        LocalizedText("{found}; less than {limit:.2f} was to be reached", found=found, limit=OVERFIT_RATIO * losses[0]),
        "a network that can hardly learn these by heart will hardly learn: model.norm pre, fewer layers?",
        values=values,
        about="network",
    )


def _overfit(updater: Updater, batch: Batch, rate: float, steps: int) -> list[float]:
    """Return the loss of each step, until the pairs are memorised."""
    peak = rate * updater.network.config.d_model**-0.5
    changes = {"schedule": "constant", "peak_lr": peak, "warmup": 10, "final_lr": 0.0, "clip_norm": 1.0}
    plain = {"label_smoothing": 0.0, "r_drop": 0.0, "ema": 0.0, "weight_decay": 0.0, "compile": "off", "capture": "off"}
    config = updater.config.replace(**changes, **plain).without_treatments()
    student = Updater(_copy_without_dropout(updater.network), config)
    losses: list[float] = []
    while len(losses) < steps and (not losses or losses[-1] > OVERFIT_RATIO * losses[0]):
        update = student.update([batch])
        losses.append(float(update.loss) / update.tokens)
    return losses


def _compute_losses(updater: Updater, batch: Batch) -> tuple[float, float]:
    """Return the loss per token, and the same without labels and logits that repeat the input token."""
    logits = compute_logits(updater, batch)
    labels, inputs = batch.labels.to(logits.device), batch.target_ids.to(logits.device)
    loss = float(cross_entropy_sum(logits, labels)) / batch.tokens
    others = labels.masked_fill(labels == inputs, PAD)
    silent = logits.scatter(-1, inputs[..., None], float("-inf"))
    return loss, float(cross_entropy_sum(silent, others)) / max(1, int((others != PAD).sum()))


def _copy_without_dropout(network: Transformer) -> Transformer:
    config = network.config.replace(dropout=0.0, attention_dropout=None, activation_dropout=None)
    copy = make_network(config, torch.Generator().manual_seed(0)).to(network.target.tokens.weight.device)
    copy.load_state_dict(network.state_dict())
    return copy
