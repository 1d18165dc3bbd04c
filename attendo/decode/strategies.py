"""Strategies that choose for each row alone: the most probable token, or one by chance."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.best import highest
from attendo.decode.frontier import NOTHING, Asked, Frontier, difference
from attendo.decode.noise import gumbel, mixed
from attendo.decode.shaping import Shape


@dataclass(frozen=True)
class Greedy:
    """The most probable token, each row for itself."""

    takes_what_is_given: ClassVar[bool] = True
    width = 1

    free_end: bool = False  # at the limit any token may be the last: see `Frontier.grow`

    def start(self, asked: Asked, capacity: int | None = None) -> Frontier:
        return Frontier.start(asked, self.width, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        return None, _grown(frontier, highest(ruled), log_probs, ruled, self.free_end)


@dataclass(frozen=True)
class Sample:
    """`width` samples a sentence, drawn from the shaped distribution.

    What is drawn follows from the seed, the number of the sentence, the row and the place alone.
    """

    takes_what_is_given: ClassVar[bool] = True

    width: int = 1
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    free_end: bool = False

    def start(self, asked: Asked, capacity: int | None = None) -> Frontier:
        return Frontier.start(asked, self.width, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        row = torch.arange(frontier.length.size(0), device=ruled.device) % self.width
        keys = mixed(mixed(mixed(frontier.asked.number + _in_64_bits(self.seed * 0x10001)) + row) + frontier.length)
        noisy = self.shape(ruled) + gumbel(keys, ruled.size(1))
        # What may not be said, or is no number, stays that: a shape could make the one of the other.
        ids = highest(torch.where(ruled > NOTHING, noisy, ruled))
        return None, _grown(frontier, ids, log_probs, ruled, self.free_end)


def _in_64_bits(number: int) -> int:
    """As it wraps around: a seed may be any number."""
    return (number + 2**63) % 2**64 - 2**63


def _grown(
    frontier: Frontier,
    ids: Int[Tensor, " R"],
    log_probs: Float[Tensor, "R V"],
    ruled: Float[Tensor, "R V"],
    free_end: bool,
) -> Frontier:
    log_probability, value = (each.gather(1, ids[:, None])[:, 0] for each in (log_probs, ruled))
    found = torch.where(value == NOTHING, NOTHING, log_probability)
    return frontier.grow(ids, found, difference(value, log_probability), free_end)
