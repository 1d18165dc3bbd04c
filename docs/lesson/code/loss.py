"""Teaching: the target shifted by one, and the loss of logits against it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BOS, EOS = 0, 1, 2


def shifted(target: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T] with BOS in front and EOS behind gives what the decoder reads and what it has to say.

    In a padded row the EOS stands before the padding: it is read once, and no label follows it but padding.
    """
    return target[:, :-1], target[:, 1:]


class CrossEntropy(nn.Module):
    """-log p(label), averaged over the tokens that are not padding. It wants logits: it takes the softmax itself."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        flat = logits.flatten(0, 1)  # [B, T, V] -> [N, C]
        return F.cross_entropy(flat, labels.flatten(), ignore_index=PAD)


criterion = CrossEntropy()


def padded(sentences: list[list[int]], length: int | None = None) -> Tensor:
    """Rows of ids, filled up with PAD to the longest, or to a given length."""
    longest = length or max(map(len, sentences))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in sentences])
