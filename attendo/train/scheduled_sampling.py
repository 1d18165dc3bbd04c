"""Scheduled sampling in two passes: the decoder reads some of its own predictions instead of the reference.

The first pass reads the reference and predicts every token. The input of the second pass is mixed from both, and its
loss trains the network (Mihaylova and Martins, 2019). The input token y[t] of the second pass is

    schedule      the reference with probability k / (k + exp(s / k)) · d ** t, else a sample of the first pass.
                  s: updates since sampling began (Bengio et al., 2015); t: the position (Liu et al., 2021)
    confidence    by c, the probability of y[t] in the first pass, with two thresholds (Liu et al., 2021):
                  c < low: the reference; low <= c <= high: a sample of the first pass; c > high: a random target token

With `schedule` the loss is that of the second pass. With `confidence` it is the mean of both passes.

A sample is drawn from the distribution of the first pass without PAD, BOS and EOS, which a decoder never reads after
the beginning. A random target token is the token at a uniform position of the batch. Nothing here waits for the device,
so that a pass can be captured.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attendo.text import BOS, EOS, PAD
from attendo.train.config import TrainConfig


class ScheduledSampling:
    """Makes the input of the second pass. The first `prefix` tokens after BOS stay, because generation gives them.

    `gold_share` is a tensor, so that a captured pass reads its new value.
    """

    def __init__(self, config: TrainConfig, device: torch.device, prefix: int = 0) -> None:
        self._config, self._prefix = config, prefix
        self.is_active = False
        self.gold_share = torch.ones((), device=device)

    def set_step(self, step: int) -> bool:
        """Prepare the update of this step. Return whether the pass has another form than in the step before."""
        before = self.is_active
        since = step - 1 - round(self._config.sampling_start * self._config.steps)
        self.is_active = since >= 0
        if self.is_active:
            self.gold_share.fill_(inverse_sigmoid(since, self._config.sampling_decay))
        return self.is_active != before

    @torch.no_grad()
    def mix(
        self, logits: Float[Tensor, "B T V"], target_ids: Int[Tensor, "B T"], labels: Int[Tensor, "B T"]
    ) -> Int[Tensor, "B T"]:
        """Return the input of the second pass. `logits` are those of the first."""
        # The label before a position is the token that it reads.
        logits, wanted, gold = logits[:, :-1].float(), labels[:, :-1], target_ids[:, 1:]
        if self._config.scheduled_sampling == "schedule":
            mixed = torch.where(self._draw_gold(gold), gold, sample_tokens(logits))
        else:
            low, high = self._config.sampling_thresholds
            confidence = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").neg().exp()
            confidence = confidence.view(wanted.shape)
            other = torch.where(
                confidence > high, draw_target_tokens(labels[:, self._prefix :], wanted.shape), sample_tokens(logits)
            )
            mixed = torch.where(confidence < low, gold, other)
        mixed = torch.where((gold == PAD) | (gold == EOS), gold, mixed)  # EOS ends a document of running text
        return torch.cat((target_ids[:, : 1 + self._prefix], mixed[:, self._prefix :]), dim=1)

    def _draw_gold(self, gold: Int[Tensor, "B T"]) -> Tensor:
        """Draw the positions that read the reference. The first token is at position 1."""
        position = torch.arange(1, gold.size(1) + 1, device=gold.device)
        share = self.gold_share * self._config.sampling_position_decay**position
        return torch.rand(gold.shape, device=gold.device) < share


def inverse_sigmoid(step: int, k: float) -> float:
    """Return k / (k + exp(step / k)): k / (k + 1) at first, 1/2 at step k · ln k."""
    return k / (k + math.exp(min(step / k, 700.0)))  # exp(710) overflows


def sample_tokens(logits: Float[Tensor, "B T V"]) -> Int[Tensor, "B T"]:
    """Draw a token from each distribution, but not PAD, BOS and EOS."""
    noise = torch.empty_like(logits).exponential_().log()  # -noise has a Gumbel distribution
    noisy = logits - noise
    for each in (PAD, BOS, EOS):
        noisy[..., each] = float("-inf")
    return noisy.argmax(-1)


def draw_target_tokens(labels: Int[Tensor, "B T"], shape: torch.Size) -> Int[Tensor, "..."]:
    """Draw tokens of the batch, each from a uniform position, but not PAD and EOS."""
    order = ((labels != PAD) & (labels != EOS)).flatten().cumsum(0)  # the number of each token, from 1
    drawn = (torch.rand(shape, device=labels.device) * order[-1]).long().clamp(max=order[-1] - 1)
    index = torch.searchsorted(order, drawn, right=True).clamp(max=order.numel() - 1)
    return labels.flatten()[index]
