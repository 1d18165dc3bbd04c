"""A network of ONNX Runtime for those who give several tokens at once."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.interop.onnx_network import OnnxNetwork
from attendo.interop.onnx_storage import OnnxMemory, OnnxState


class StepByStep:
    """It reads a token of a row at a time."""

    def __init__(self, network: OnnxNetwork) -> None:
        self._network = network

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> OnnxMemory:
        return self._network.encode(source_ids, source_mask)

    def start(self, memory: OnnxMemory) -> OnnxState:
        return self._network.start(memory)

    def step(self, ids: Int[Tensor, "R T"], state: OnnxState) -> tuple[Float[Tensor, "R T V"], OnnxState]:
        columns = []
        for column in ids.split(1, dim=1):
            logits, state = self._network.step(column.contiguous(), state)
            columns.append(logits.clone())  # the next ones are written in their place
        return torch.cat(columns, dim=1), state
