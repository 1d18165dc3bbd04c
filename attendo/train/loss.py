"""The loss: cross-entropy with label smoothing, summed over target tokens without padding."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attendo.text import PAD


def training_loss(
    logits: Float[Tensor, "R T V"], labels: Int[Tensor, "B T"], label_smoothing: float, r_drop: float = 0.0
) -> Float[Tensor, ""]:
    """Return the training loss. With R-Drop (Liang et al. 2021) `logits` holds the rows of two passes, concatenated.

    The R-Drop loss is half of equation 4 in the paper, so that the weight of a token does not change.
    """
    if not r_drop:
        return cross_entropy_sum(logits, labels, label_smoothing)
    first, second = logits.chunk(2)
    both = cross_entropy_sum(first, labels, label_smoothing) + cross_entropy_sum(second, labels, label_smoothing)
    return (both + r_drop * divergence_sum(first, second, labels)) / 2


def cross_entropy_sum(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the summed loss. Divide it by the tokens of the whole update, even if computed in several batches."""
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
    """(KL(p ‖ q) + KL(q ‖ p)) / 2 between two passes over the same tokens, summed over all tokens except padding."""
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2  # KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q)
    return both.masked_fill(labels == PAD, 0.0).sum()
