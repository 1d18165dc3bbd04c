"""The loss: cross-entropy with label smoothing, summed over target tokens without padding."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.compiler import is_compiling

from attendo.nn import cross_entropy
from attendo.nn.divergence import divergence
from attendo.nn.triton_launch import runs_kernels
from attendo.text import PAD


def training_loss(
    logits: Float[Tensor, "R T V"], labels: Int[Tensor, "B T"], label_smoothing: float, r_drop: float = 0.0
) -> Float[Tensor, ""]:
    """Return the training loss. With R-Drop (Liang et al. 2021) `logits` holds the rows of two passes, concatenated.

    The R-Drop loss is half of equation 4 in the paper, so that the weight of a token does not change.
    """
    if not r_drop:
        return cross_entropy_sum(logits, labels, label_smoothing)
    both = cross_entropy_sum(logits, labels.repeat(2, 1), label_smoothing)
    return (both + r_drop * divergence_sum(logits, labels)) / 2


def cross_entropy_sum(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the summed loss. Divide it by the tokens of the whole update, even if computed in several batches."""
    return cross_entropy.cross_entropy_sum(logits.flatten(0, 1), labels.flatten(), PAD, label_smoothing)


def divergence_sum(logits: Float[Tensor, "R T V"], labels: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """(KL(p ‖ q) + KL(q ‖ p)) / 2 between two passes over the same tokens, summed over all tokens except padding."""
    both = divergence(logits) if runs_kernels(logits) and not is_compiling() else _divergence(logits)
    return both.masked_fill(labels == PAD, 0.0).sum()


def _divergence(logits: Float[Tensor, "R T V"]) -> Float[Tensor, "B T"]:
    """The same as `divergence`. It keeps the probabilities, which is faster on a CPU, and a compiler can fuse it."""
    p, q = (each.log_softmax(-1) for each in logits.chunk(2))
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2  # KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q)
