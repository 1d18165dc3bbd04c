"""Ranking: what makes one hypothesis better than another of another length.

    value(y) = log p(y | x) + penalties            |y| counts the tokens, eos included unless said otherwise

    none       score(y) = value(y)
    average    score(y) = value(y) / |y| ** length_penalty
    gnmt       score(y) = value(y) / ((5 + |y|) / 6) ** length_penalty        (Wu et al. 2016, equation 14)
    reward     score(y) = value(y) + length_penalty * |y|

A log-probability is below 0, so a higher length penalty favours longer answers in all three.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.frontier import Frontier

Normalise = Literal["none", "average", "gnmt", "reward"]


@dataclass(frozen=True)
class Ranking:
    """A formula of those above."""

    normalise: Normalise = "average"
    length_penalty: float = 1.0
    counts_eos: bool = True

    def score(self, frontier: Frontier) -> Float[Tensor, " R"]:
        """Of every row as far as it has come; -∞ where nothing is."""
        return self.formula(frontier.value, self.tokens(frontier))

    def tokens(self, frontier: Frontier) -> Int[Tensor, " R"]:
        """|y|"""
        return frontier.length if self.counts_eos else frontier.length - frontier.ended.long()

    def best_possible(self, frontier: Frontier) -> Float[Tensor, " R"]:
        """The highest score that a row can still come to, if all that follows it were certain."""
        now, at_the_limit = self.tokens(frontier) + 1, frontier.asked.limit + int(self.counts_eos)
        return torch.maximum(self.formula(frontier.value, now), self.formula(frontier.value, at_the_limit))

    def formula(self, value: Float[Tensor, " R"], tokens: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
        counted = tokens.clamp(min=1).to(value.dtype)
        match self.normalise:
            case "none":
                return value
            case "average":
                return value / counted**self.length_penalty
            case "gnmt":
                return value / ((5 + counted) / 6) ** self.length_penalty
            case "reward":
                return value + self.length_penalty * counted
