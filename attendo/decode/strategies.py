"""Strategies that choose each row by itself: greedy search, and sampling with its filters and noise.

    temperature T    p(v) ** (1 / T), renormalised
    top_k            the k most probable tokens
    top_p            the fewest most probable tokens with total probability top_p (Holtzman et al. 2020)
    min_p            tokens with at least min_p times the highest probability (Nguyen et al. 2025)
    typical          the fewest tokens with this total probability, -log p nearest the entropy first (Meister 2023)

The filters are applied in this order, each to the result of the previous one.

Sampling noise is a hash of seed, sentence, row and position. It does not depend on the batch or the engine.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.beam import argmax_rows
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits, difference
from attendo.decode.search import Strategy
from attendo.errors import UsageError
from attendo.keyed_random import SPLITMIX64

# As int64, with wrap-around.
_SPLITMIX_INCREMENT, _SPLITMIX_MULTIPLIER_1, _SPLITMIX_MULTIPLIER_2 = (each - 2**64 for each in SPLITMIX64)


@dataclass(frozen=True)
class SamplingFilter:
    """Sampling filters. The defaults change nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UsageError("temperature_not_positive", temperature=self.temperature)
        if self.top_k < 0:
            raise UsageError("top_k_negative", top_k=self.top_k)
        for option, value in (("top_p", self.top_p), ("typical_p", self.typical_p)):
            if not 0.0 < value <= 1:
                raise UsageError("probability_mass_out_of_range", option=option, value=value)
        if not 0 <= self.min_p <= 1:
            raise UsageError("min_p_out_of_range", min_p=self.min_p)

    def __call__(self, log_probs: Float[Tensor, "R V"]) -> Float[Tensor, "R V"]:
        shaped = (log_probs / self.temperature).log_softmax(-1)
        if 0 < self.top_k < shaped.size(1):
            shaped = shaped.masked_fill(shaped < shaped.topk(self.top_k).values[:, -1:], NEG_INF)
        if self.top_p < 1:
            shaped = _restrict_to_mass(shaped, -shaped, self.top_p)
        if self.min_p > 0:
            shaped = shaped.masked_fill(
                shaped < shaped.amax(-1, keepdim=True) + torch.tensor(self.min_p).log(), NEG_INF
            )
        if self.typical_p < 1:
            shaped = shaped.log_softmax(-1)
            entropy = -(shaped.exp() * shaped.masked_fill(shaped == NEG_INF, 0.0)).sum(-1, keepdim=True)
            shaped = _restrict_to_mass(shaped, (-shaped - entropy).abs(), self.typical_p)
        return shaped


def _restrict_to_mass(log_probs: Float[Tensor, "R V"], cost: Float[Tensor, "R V"], mass: float) -> Float[Tensor, "R V"]:
    """Keep the tokens of lowest cost that together have this probability mass, at least one."""
    order = cost.argsort(dim=-1, stable=True)
    probabilities = log_probs.softmax(-1).gather(-1, order)
    before = probabilities.cumsum(-1) - probabilities
    stays: Bool[Tensor, "R V"] = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, order, before < mass)
    return log_probs.masked_fill(~stays, NEG_INF)


@dataclass(frozen=True)
class Greedy(Strategy):
    """Chooses the most probable token of each row."""

    supports_prefill = True
    width = 1

    free_end: bool = False  # at the limit any token may be the last: see `Frontier.append`

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        return Frontier.start(limits, self.width, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        return None, _append_ids(frontier, argmax_rows(ruled), log_probs, ruled, self.free_end)


@dataclass(frozen=True)
class Sampling(Strategy):
    """Draws `width` samples per sentence from the filtered distribution.

    A sample depends only on the seed, the request id, the row and the position.
    """

    supports_prefill = True

    width: int = 1
    seed: int = 0
    sampling_filter: SamplingFilter = field(default_factory=SamplingFilter)
    free_end: bool = False

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        return Frontier.start(limits, self.width, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        row = torch.arange(frontier.length.size(0), device=ruled.device) % self.width
        keys = hash64(
            hash64(hash64(frontier.limits.request_id + _wrap_int64(self.seed * 0x10001)) + row) + frontier.length
        )
        noisy = self.sampling_filter(ruled) + gumbel_noise(keys, ruled.size(1))
        # Keep -∞ and NaN from `ruled`, because the filter could turn one into the other.
        ids = argmax_rows(torch.where(ruled > NEG_INF, noisy, ruled))
        return None, _append_ids(frontier, ids, log_probs, ruled, self.free_end)


def _wrap_int64(number: int) -> int:
    """Wrap around to int64, so that a seed may be any integer."""
    return (number + 2**63) % 2**64 - 2**63


def _append_ids(
    frontier: Frontier,
    ids: Int[Tensor, " R"],
    log_probs: Float[Tensor, "R V"],
    ruled: Float[Tensor, "R V"],
    free_end: bool,
) -> Frontier:
    log_probability, value = (each.gather(1, ids[:, None])[:, 0] for each in (log_probs, ruled))
    found = torch.where(value == NEG_INF, NEG_INF, log_probability)
    return frontier.append(ids, found, difference(value, log_probability), free_end)


def gumbel_noise(keys: Int[Tensor, " R"], count: int) -> Float[Tensor, "R V"]:
    """Return `count` Gumbel samples -ln(-ln u) for each key. argmax(logits + noise) is a sample of the softmax."""
    each = hash64(hash64(keys)[:, None] + torch.arange(count, device=keys.device))
    uniform = (_shift_right(each, 40).float() + 0.5) * 2.0**-24
    return -torch.log(-torch.log(uniform))


def hash64(number: Int[Tensor, "*S"]) -> Int[Tensor, "*S"]:
    """Hash integers so that every output bit depends on every input bit."""
    number = number + _SPLITMIX_INCREMENT
    number = (number ^ _shift_right(number, 30)) * _SPLITMIX_MULTIPLIER_1
    number = (number ^ _shift_right(number, 27)) * _SPLITMIX_MULTIPLIER_2
    return number ^ _shift_right(number, 31)


def _shift_right(number: Int[Tensor, "*S"], bits: int) -> Int[Tensor, "*S"]:
    """Shift right and fill with zeros."""
    return (number >> bits) & ((1 << (64 - bits)) - 1)
