"""The loss: cross-entropy with label smoothing, as a sum over target tokens; padding never counts."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attendo.text import PAD


def summed_loss(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Divide by the tokens of the whole batch, however many pieces it was computed in: a sum, not a mean of means."""
    return F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=label_smoothing, reduction="sum"
    )
