"""Ranking: scores that compare hypotheses of different lengths.

    value(y) = log p(y | x) + penalties - word_penalty * |y|        |y| counts the tokens, with EOS by default

    none       score(y) = value(y)
    average    score(y) = value(y) / |y| ** length_penalty
    gnmt       score(y) = value(y) / ((5 + |y|) / 6) ** length_penalty        (Wu et al. 2016, equation 14)
    reward     score(y) = value(y) + length_penalty * |y|

A log-probability is below 0, so a higher length penalty favours longer answers in the last three. The coverage term is
added to each score (same paper and equation):

    coverage_penalty * sum over i of log(min(sum over j of a(i, j), 1))

a(i, j) is the attention to source position i when token j was chosen.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from attendo.decode.config import GenerationConfig
from attendo.decode.frontier import Frontier
from attendo.errors import UsageError

Normalise = Literal["none", "average", "gnmt", "reward"]


@dataclass(frozen=True)
class Ranking:
    """One of the formulas above."""

    normalise: Normalise = "average"
    length_penalty: float = 1.0
    counts_eos: bool = True
    coverage_penalty: float = 0.0
    word_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.coverage_penalty < 0:
            raise UsageError("coverage_penalty_negative", coverage_penalty=self.coverage_penalty)

    @staticmethod
    def from_config(config: GenerationConfig) -> "Ranking":
        length = config.length_penalty
        return Ranking(config.normalise, length, config.counts_eos, config.coverage_penalty, config.word_penalty)

    def score(self, frontier: Frontier) -> Float[Tensor, " R"]:
        """Return the score of every row at its current length; -∞ without a hypothesis."""
        score = self.score_values(frontier.value, self.tokens(frontier))
        return score if self.coverage_penalty == 0 else score + self.coverage(frontier)

    def coverage(self, frontier: Frontier) -> Float[Tensor, " R"]:
        """Return the coverage term of the score."""
        return self.coverage_penalty * frontier.coverage

    def tokens(self, frontier: Frontier) -> Int[Tensor, " R"]:
        """Return |y|, the length in tokens."""
        return frontier.length if self.counts_eos else frontier.length - (frontier.ended & ~frontier.cut).long()

    def best_possible(self, frontier: Frontier) -> Float[Tensor, " R"]:
        """Return the highest score a row can reach, if all later tokens had probability 1 and full coverage."""
        now, last = self.tokens(frontier) + int(self.counts_eos), frontier.limits.max_length + 1
        value = frontier.value - self.word_penalty * (now if self.word_penalty > 0 else last)
        return torch.maximum(self._normalise_length(value, now), self._normalise_length(value, last))

    def order(self, frontier: Frontier, rank_class: Integer[Tensor, " R"] | None = None) -> Int[Tensor, "B W"]:
        """Return the row indices of each sentence, best first. Lower rank classes come first, regardless of the score.

        By default there are two: finished rows rank before cut ones.
        """
        by_score = self.score(frontier).view(-1, frontier.width).argsort(dim=1, descending=True, stable=True)
        rank_class = (~frontier.ended).byte() if rank_class is None else rank_class
        return by_score.gather(1, rank_class.view_as(by_score).gather(1, by_score).argsort(dim=1, stable=True))

    def terms(self, tokens: int) -> tuple[float, float]:
        """Return the divisor and the added term for a value of `tokens` tokens."""
        tokens = max(1, tokens)
        words = -self.word_penalty * tokens if self.word_penalty else 0.0
        match self.normalise:
            case "none":
                return 1.0, words
            case "average":
                divisor = tokens**self.length_penalty
                return divisor, words / divisor
            case "gnmt":
                divisor = ((5 + tokens) / 6) ** self.length_penalty
                return divisor, words / divisor
            case "reward":
                return 1.0, words + self.length_penalty * tokens

    def score_values(self, value: Float[Tensor, " R"], tokens: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
        """Return the scores of values with these numbers of tokens, without coverage."""
        if self.word_penalty:
            value = value - self.word_penalty * tokens.clamp(min=1)
        return self._normalise_length(value, tokens)

    def _normalise_length(self, value: Float[Tensor, " R"], tokens: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
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
