"""The network as the paper has it: no cache, every formula written out, all of the target read again for each token."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.model.state import Memory
from attendo.model.transformer import Transformer


@dataclass(frozen=True)
class TextbookState:
    """The memory of each sentence, and all that its rows have said."""

    memory: Memory
    ids: Int[Tensor, "R T"] | None = None

    def follow(self, parents: Int[Tensor, " R"]) -> "TextbookState":
        assert self.ids is not None  # nobody can be followed before the first token
        return replace(self, ids=self.ids.index_select(0, parents))

    def keep(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "TextbookState":
        mask = self.memory.mask
        memory = Memory(
            self.memory.states.index_select(0, sentences), None if mask is None else mask.index_select(0, sentences)
        )
        return TextbookState(memory, None if self.ids is None else self.ids.index_select(0, rows))


class Textbook:
    """A stepper for `search`."""

    def __init__(self, network: Transformer) -> None:
        self._network = network

    def start(self, source_ids: Int[Tensor, "B S"], mask: Tensor | None) -> TextbookState:
        if self._network.decoder_only:
            return TextbookState(self._network.encode(source_ids[:, :0]))
        return TextbookState(self._network.encode(source_ids, mask, tap=_written_out))

    def step(self, ids: Int[Tensor, "R 1"], state: TextbookState) -> tuple[Float[Tensor, "R 1 V"], TextbookState]:
        said = ids if state.ids is None else torch.cat((state.ids, ids), dim=1)
        logits, _ = self._network.step(said, self._network.start(state.memory), tap=_written_out)
        return logits[:, -1:], replace(state, ids=said)


def _written_out(site: str, weights: Tensor) -> None:
    """That somebody looks is enough: the network then takes the formula and not the library's kernel."""
