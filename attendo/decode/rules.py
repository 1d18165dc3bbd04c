"""Rules: what may not be said."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attendo.decode.frontier import NOTHING, Frontier
from attendo.text import BOS, PAD


@dataclass(frozen=True)
class Forbid:
    """Tokens that are never chosen. What remains keeps its log-probability: scores stay those of the model."""

    ids: Sequence[int] = (PAD, BOS)

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        log_probs = log_probs.clone()
        for each in self.ids:  # one by one: a list of places would be sent to the device at every step
            log_probs[:, each] = NOTHING
        return log_probs
