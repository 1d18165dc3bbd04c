"""Whether the network begins where it should, and whether it can learn at all."""

import math
from collections.abc import Sequence

import torch

from attendo.data.batch import Batch, Example, collate
from attendo.model.transformer import Transformer
from attendo.recipes.doctor.finding import Finding
from attendo.recipes.doctor.passes import logits_of
from attendo.text import PAD
from attendo.train.learner import Learner
from attendo.train.loss import summed_loss

_OFF = 0.1  # share of ln V that a first loss may be off
_UNIT_LOGITS = 0.5  # what logits of variance 1 add to ln V

STEPS = 300
LEARNT = 0.1  # of the first loss
_WARMUP = 10


def first_loss(learner: Learner, pairs: Sequence[Example], trained: bool) -> Finding:
    """An untrained network must find all tokens about equally likely: a loss near ln V.

    A tied table makes it repeat its input, which a larger vocabulary drowns out; that is no fault and is left out.
    """
    learner.network.eval()
    batch = collate(pairs)
    loss, without_repeats = _losses(learner, batch)
    even = math.log(learner.network.output.out_features)
    values = {"loss": loss, "ln_v": even, "without_repeats": without_repeats}
    if trained:
        found = f"{loss:.2f}, and {even:.2f} if all tokens were equally likely (ln V)"
        if loss < even:
            return Finding("first loss", "ok", found, values=values, about="network")
        advice = "the model to go on from knows nothing of this text: is it the right one, and the same task?"
        return Finding("first loss", "warning", found, advice, values=values, about="network")
    kinds = len(batch.labels.unique())
    off = _OFF * even + 2 * kinds**-0.5  # where few tokens occur, chance has its say in the mean of their logits
    found = f"{loss:.2f}, with all tokens equally likely {even:.2f} (ln V)"
    if learner.network.config.tie != "none":
        found += f", without repeating the input {without_repeats:.2f}"
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


def overfitting(learner: Learner, pairs: Sequence[Example]) -> Finding:
    """A copy of the network, without dropout, must learn a few pairs by heart."""
    copy = _copy(learner.network)
    rate = 0.02 * learner.network.config.d_model**-0.5
    changes = {"schedule": "constant", "peak_lr": rate, "warmup": _WARMUP, "final_lr": 0.0, "clip_norm": 1.0}
    plain = {"label_smoothing": 0.0, "r_drop": 0.0, "ema": 0.0, "compile": "off", "capture": "off", "weight_decay": 0.0}
    student = Learner(copy, learner.config.replace(**changes, **plain))
    batch = collate(pairs)
    losses: list[float] = []
    while len(losses) < STEPS and (not losses or losses[-1] > LEARNT * losses[0]):
        update = student.update([batch])
        losses.append(float(update.loss) / update.tokens)
    values = {"first": losses[0], "last": losses[-1], "steps": len(losses), "pairs": len(pairs)}
    found = f"{len(pairs)} pairs, from a loss of {losses[0]:.2f} to {losses[-1]:.2f} in {len(losses)} steps"
    if losses[-1] <= LEARNT * losses[0]:
        return Finding("overfitting one batch", "ok", found, values=values, about="network")
    return Finding(
        "overfitting one batch",
        "fault",
        f"{found}; less than {LEARNT * losses[0]:.2f} was to be reached",
        "a network that cannot learn these by heart will learn nothing: look at its gradients and sizes",
        values=values,
        about="network",
    )


def _losses(learner: Learner, batch: Batch) -> tuple[float, float]:
    """Per token; and over the tokens that do not repeat the one before, which is no choice then."""
    logits = logits_of(learner, batch)
    labels, inputs = batch.labels.to(logits.device), batch.target_ids.to(logits.device)
    loss = float(summed_loss(logits, labels)) / batch.tokens
    others = labels.masked_fill(labels == inputs, PAD)
    silent = logits.scatter(-1, inputs[..., None], float("-inf"))
    return loss, float(summed_loss(silent, others)) / max(1, int((others != PAD).sum()))


def _copy(network: Transformer) -> Transformer:
    config = network.config.replace(dropout=0.0, attention_dropout=None, activation_dropout=None)
    copy = Transformer(config, torch.Generator().manual_seed(0)).to(network.target.tokens.weight.device)
    copy.load_state_dict(network.state_dict())
    return copy
