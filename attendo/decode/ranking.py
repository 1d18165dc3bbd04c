"""Ranking: what makes one hypothesis better than another."""

from jaxtyping import Float
from torch import Tensor

from attendo.decode.search import Frontier


def score(log_probability: float, tokens: int, length_penalty: float) -> float:
    """log p(y | x) / tokens ** length_penalty, where tokens counts eos: 0 ranks by the sum, 1 by the average.

    A log-probability is below 0, so a higher length penalty favours longer answers.
    """
    return log_probability / max(1, tokens) ** length_penalty


def row_scores(frontier: Frontier, length_penalty: float) -> Float[Tensor, " R"]:
    """The score of every row as far as it has come; it falls below all others where nothing is."""
    return frontier.log_probability / frontier.tokens.clamp(min=1).float() ** length_penalty
