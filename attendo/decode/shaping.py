"""Shaping: which tokens a sample is drawn from, and how evenly.

    temperature T    p(v) ** (1 / T), made to sum to 1 again
    top_k            the k most probable
    top_p            the fewest most probable that have p together (Holtzman et al. 2020)
    min_p            those with at least min_p times the probability of the most probable (Nguyen et al. 2025)
    typical          the fewest that have it together, those first whose -log p is nearest the entropy (Meister 2023)

They are applied in this order, each to what the one before left.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attendo.errors import UsageError

_NOT = float("-inf")


@dataclass(frozen=True)
class Shape:
    """The defaults change nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UsageError("temperature_not_positive", temperature=self.temperature)
        if self.top_k < 0:
            raise UsageError("top_k_negative", top_k=self.top_k)
        for name, low in (("top_p", 0.0), ("typical", 0.0)):
            if not low < getattr(self, name) <= 1:
                raise UsageError("probability_mass_out_of_range", option=name, value=getattr(self, name))
        if not 0 <= self.min_p <= 1:
            raise UsageError("min_p_out_of_range", min_p=self.min_p)

    def __call__(self, log_probs: Float[Tensor, "R V"]) -> Float[Tensor, "R V"]:
        shaped = (log_probs / self.temperature).log_softmax(-1)
        if 0 < self.top_k < shaped.size(1):
            shaped = shaped.masked_fill(shaped < shaped.topk(self.top_k).values[:, -1:], _NOT)
        if self.top_p < 1:
            shaped = _fewest(shaped, -shaped, self.top_p)
        if self.min_p > 0:
            shaped = shaped.masked_fill(shaped < shaped.amax(-1, keepdim=True) + torch.tensor(self.min_p).log(), _NOT)
        if self.typical < 1:
            shaped = shaped.log_softmax(-1)
            entropy = -(shaped.exp() * shaped.masked_fill(shaped == _NOT, 0.0)).sum(-1, keepdim=True)
            shaped = _fewest(shaped, (-shaped - entropy).abs(), self.typical)
        return shaped


def _fewest(log_probs: Float[Tensor, "R V"], cost: Float[Tensor, "R V"], share: float) -> Float[Tensor, "R V"]:
    """Those of lowest cost that have this share of the probability together; at least one."""
    order = cost.argsort(dim=-1, stable=True)
    probabilities = log_probs.softmax(-1).gather(-1, order)
    before = probabilities.cumsum(-1) - probabilities
    stays: Bool[Tensor, "R V"] = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, order, before < share)
    return log_probs.masked_fill(~stays, _NOT)
