"""Coverage penalty: lowers the rank of answers that ignore parts of the source.

    coverage(y) = sum over i of log(min(sum over j of a(i, j), 1))        (Wu et al. 2016, equation 14)

a(i, j) is the attention to source position i at the step that chose token j, averaged over the heads of the last
decoder layer. EOS counts as a token. For a cut answer, the step that would have chosen EOS counts. The sum is 0 if
every position received an attention of 1 or more, and below 0 otherwise. The ranking adds it to the score, times
`Ranking.coverage_penalty`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.frontier import Frontier
from attendo.decode.networks import WrappedNetwork
from attendo.decode.search import ScoringState
from attendo.errors import UsageError
from attendo.model.decoder_state import DecoderState
from attendo.model.prefix import name_source_site, select_source_weights
from attendo.model.transformer import Transformer

# Attention can underflow to 0. Its logarithm must stay finite, because -∞ marks a row without a hypothesis.
_MIN_ATTENTION = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class CoverageState(ScoringState):
    """The state of a stepper, and the attention that each source position received from each row."""

    inner: Any
    attention: Float[Tensor, "R S"]
    mask: Bool[Tensor, "B S"]  # True at source tokens

    @staticmethod
    def empty(inner: Any, mask: Bool[Tensor, "B S"], width: int) -> "CoverageState":
        """Return the state before the first step, with `width` rows per sentence."""
        return CoverageState(inner, torch.zeros(mask.size(0) * width, mask.size(1), device=mask.device), mask)

    def reorder(self, parents: Int[Tensor, " R"]) -> "CoverageState":
        return CoverageState(self.inner.reorder(parents), self.attention.index_select(0, parents), self.mask)

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "CoverageState":
        inner = self.inner.select(sentences, rows)
        return CoverageState(inner, self.attention.index_select(0, rows), self.mask.index_select(0, sentences))

    def insert(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " M"], start: DecoderState) -> None:
        """Put new sentences into these slots in place, with zero attention."""
        self.inner.insert(sentences, rows, start)
        self.attention.index_fill_(0, rows, 0.0)
        assert start.memory_mask is not None
        self.mask.index_copy_(0, sentences, start.memory_mask)

    def write(self, after: "CoverageState", rows: Bool[Tensor, " R"]) -> None:
        """Copy the state after a step into this one in place."""
        self.inner.write(after.inner, rows)
        self.attention.copy_(after.attention)

    def coverage(self) -> Float[Tensor, " R"]:
        """Return the coverage of each row. Padding does not count."""
        logarithms = self.attention.clamp(_MIN_ATTENTION, 1.0).log()
        by_sentence = logarithms.view(self.mask.size(0), -1, self.mask.size(1))  # [B, W, S]
        return by_sentence.masked_fill(~self.mask[:, None], 0.0).sum(dim=-1).flatten()

    def update_frontier(self, frontier: Frontier) -> Frontier:
        """Update the coverage of open rows. Closed rows keep theirs, although the network still steps them."""
        return replace(frontier, coverage=torch.where(frontier.open, self.coverage(), frontier.coverage))


class CoverageNetwork(WrappedNetwork):
    """A network that accumulates attention. Its states are `CoverageState`."""

    def __init__(self, network: Transformer) -> None:
        if network.continues_text:
            raise UsageError("coverage_penalty_without_source")
        super().__init__(network)
        self._site = name_source_site(network.config)

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> CoverageState:
        """Return an empty state of fixed size."""
        mask = torch.ones(sentences, source_width, dtype=torch.bool, device=self.device)
        return CoverageState.empty(super().allocate_state(sentences, source_width, width, capacity), mask, width)

    def step(self, ids: Int[Tensor, "R 1"], state: CoverageState) -> tuple[Float[Tensor, "R 1 V"], CoverageState]:
        seen: list[Tensor] = []

        def tap(site: str, weights: Tensor) -> None:
            if site == self._site:
                to_source = select_source_weights(weights[:, :, -1:], state.mask.size(1), self.network.config)
                seen.append(to_source[:, :, 0].mean(dim=1))  # [R, H, 1, S] -> [R, S]

        logits, inner = self.network.step(ids, state.inner, tap=tap)
        return logits, replace(state, inner=inner, attention=state.attention + seen[0])
