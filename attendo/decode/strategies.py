"""Strategies: ways to choose the next token."""

from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.search import Frontier


class Greedy:
    """The most probable token, each row for itself."""

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Int[Tensor, " R"], Float[Tensor, " R"]]:
        best = log_probs.max(dim=-1)
        return None, best.indices, best.values
