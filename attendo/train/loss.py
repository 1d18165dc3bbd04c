"""The loss: cross-entropy with label smoothing, as a sum over target tokens; padding never counts."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attendo.text import PAD


def training_loss(
    logits: Float[Tensor, "R T V"], labels: Int[Tensor, "B T"], label_smoothing: float, r_drop: float = 0.0
) -> Float[Tensor, ""]:
    """With R-Drop (Liang et al. 2021) the rows are those of one pass and then, again, those of another.

    It is half of their equation 4, so that a token weighs as much as without it.
    """
    if not r_drop:
        return cross_entropy_sum(logits, labels, label_smoothing)
    first, second = logits.chunk(2)
    both = cross_entropy_sum(first, labels, label_smoothing) + cross_entropy_sum(second, labels, label_smoothing)
    return (both + r_drop * divergence_sum(first, second, labels)) / 2


def cross_entropy_sum(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Divide by the tokens of the whole batch, however many pieces it was computed in: a sum, not a mean of means."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def divergence_sum(
    first: Float[Tensor, "B T V"], second: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """(KL(p ‖ q) + KL(q ‖ p)) / 2 between two passes over the same tokens, summed over those that are not padding."""
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2  # KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q)
    return both.masked_fill(labels == PAD, 0.0).sum()
