"""The weights divided among all ranks (FSDP2): each holds its rows of every weight, of its gradient and its moments.

A block gathers its weights from all ranks when it runs, forward and backward, and lets go of them behind it. Gradients
are summed over the ranks as soon as a block has them, and each rank keeps those of its rows.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from attendo.model.decoder_state import DecoderState, Memory
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues
from attendo.nn.blocks import DecoderBlock
from attendo.train.distributed import Distributed, ReplicatedWeights


class FSDPWeights(ReplicatedWeights):
    """What learns is a copy of the network, in parts. The network itself takes up memory only while it is filled."""

    is_sharded = True

    def __init__(self, network: Transformer, world: Distributed) -> None:
        self._world, self._full_network = world, network
        self._mesh = init_device_mesh(network.device.type, (world.size,))
        learning = copy.deepcopy(network)
        learning.__class__ = _LateMemoryTransformer
        for block in (*learning.encoder, *learning.decoder):
            if isinstance(block, DecoderBlock):
                block.register_forward_pre_hook(_project_memory)
                block.register_forward_hook(_detach_cache)
            fully_shard(block, mesh=self._mesh)
        fully_shard(learning, mesh=self._mesh)
        super().__init__(learning)
        for weight in network.parameters():
            weight.data = torch.empty_like(weight)  # memory of its own, which can be given back
        self.release()

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """On the leading rank, one after the other and off the GPU: all at once might not fit. Others keep parts."""
        found = {}
        for name, tensor in tensors.items():
            whole = _full_tensor(tensor)
            found[name] = whole.cpu() if self._world.is_main else tensor
        return found

    def local_shards(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._shard(tensor) if tensor.dim() else tensor for name, tensor in tensors.items()}

    def _shard(self, tensor: Tensor) -> Tensor:
        on_device = tensor.to(self._full_network.device)
        return distribute_tensor(on_device, self._mesh, [Shard(0)], src_data_rank=None)  # every rank has all of it

    def global_norm(self, norm: Tensor) -> Tensor:
        return _full_tensor(norm)

    @torch.no_grad()
    def materialise(self) -> None:
        for weight, part in zip(self._full_network.parameters(), self.network.parameters(), strict=True):
            weight.untyped_storage().resize_(weight.nbytes)
            weight.copy_(_full_tensor(part))

    def release(self) -> None:
        for weight in self._full_network.parameters():
            weight.untyped_storage().resize_(0)


class _LateMemoryTransformer(Transformer):
    """The decoder's blocks project the memory when they run: before, their weights are with the other ranks."""

    def start(self, memory: Memory | None = None) -> DecoderState:
        if memory is None:
            return super().start()
        unprojected = memory.states.unsqueeze(1)  # as of one head
        return DecoderState(tuple(KeysValues(unprojected, unprojected) for _ in self.decoder), memory.mask)


def _project_memory(block: DecoderBlock, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    x, past, mask, memory, *rest = inputs
    if block.cross_attention is not None:
        memory = block.cross_attention.keys_values(memory.keys.squeeze(1))
    return x, past, mask, memory, *rest


def _detach_cache(block: DecoderBlock, inputs: tuple[Any, ...], outputs: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """One step reads a whole target: no gradient comes back through what would be the past of a next one."""
    x, kv = outputs
    return x, KeysValues(kv.keys.detach(), kv.values.detach())


def _full_tensor(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
