"""A network that is looked into, or changed, while it generates."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.model.heads import ScaledHeads
from attendo.model.state import DecoderState, FixedState, Memory
from attendo.model.transformer import Transformer
from attendo.nn.attention import Tap


class Tapped:
    """Steps like the network, with a tap at every step: what the tap returns, search and scores are made of."""

    def __init__(self, network: Transformer, tap: Tap) -> None:
        if isinstance(tap, ScaledHeads):
            tap.check(network.config)
        self.network, self.tap = network, tap

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def decoder_only(self) -> bool:
        return self.network.decoder_only

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        return self.network.encode(source_ids, source_mask, self.tap)

    def start(self, memory: Memory | None = None) -> DecoderState:
        return self.network.start(memory)

    def room(self, sentences: int, source_width: int, width: int, capacity: int) -> FixedState:
        return self.network.room(sentences, source_width, width, capacity)

    def step(self, ids: Int[Tensor, "R T"], state: Any) -> tuple[Float[Tensor, "R T V"], Any]:
        return self.network.step(ids, state, tap=self.tap)
