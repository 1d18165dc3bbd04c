"""Sharded weights (FSDP2): each rank holds its rows of every weight, gradient and moment.

A block gathers its weights from all ranks when it runs, forward and backward, and frees them afterwards. Gradients are
reduce-scattered as soon as a block has them.
"""

import atexit
import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from attendo.model.decoder_state import DecoderState, Memory
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues
from attendo.nn.blocks import DecoderBlock
from attendo.train.distributed import Distributed, ReplicatedWeights


class FSDPWeights(ReplicatedWeights):
    """Weight placement with FSDP2. A sharded copy of the network is trained.

    The original network holds memory only between `materialise` and `release`.
    """

    is_sharded = True

    def __init__(self, network: Transformer, world: Distributed, cpu_offload: bool = False) -> None:
        _init_single_process_group(network.device)
        self._world, self._full_network, self._cpu_offload = world, network, cpu_offload
        self._mesh = init_device_mesh(network.device.type, (world.size,))
        learning = copy.deepcopy(network)
        learning.__class__ = _LateMemoryTransformer
        options: dict[str, Any] = {"mesh": self._mesh}
        if cpu_offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=network.device.type == "cuda")
        for block in (*learning.encoder, *learning.decoder):
            if isinstance(block, DecoderBlock):
                block.register_forward_pre_hook(_project_memory)
                block.register_forward_hook(_detach_cache)
            fully_shard(block, **options)
        fully_shard(learning, **options)
        super().__init__(learning)
        for weight in network.parameters():
            weight.data = torch.empty_like(weight)  # separate storage, which can be freed
        self.release()

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Gather on rank 0, one tensor at a time and on the CPU: all at once might not fit. Other ranks keep shards."""
        found = {}
        for name, tensor in tensors.items():
            full = _full_tensor(tensor)
            found[name] = full.cpu() if self._world.is_main else tensor
        return found

    def local_shards(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._shard(tensor) if tensor.dim() else tensor for name, tensor in tensors.items()}

    def _shard(self, tensor: Tensor) -> Tensor:
        on_device = tensor if self._cpu_offload else tensor.to(self._full_network.device)
        return distribute_tensor(
            on_device, self._mesh, [Shard(0)], src_data_rank=None
        )  # all ranks have the full tensor

    def global_norm(self, norm: Tensor) -> Tensor:
        return _full_tensor(norm).to(self._full_network.device)  # with offload, gradients are on the CPU

    @torch.no_grad()
    def materialise(self) -> None:
        for weight, part in zip(self._full_network.parameters(), self.network.parameters(), strict=True):
            weight.untyped_storage().resize_(weight.nbytes)
            weight.copy_(_full_tensor(part))

    def release(self) -> None:
        for weight in self._full_network.parameters():
            weight.untyped_storage().resize_(0)


def _init_single_process_group(device: torch.device) -> None:
    """Make the process group that FSDP needs, if there is one process without torchrun."""
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        atexit.register(_destroy_process_group)


def _destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


class _LateMemoryTransformer(Transformer):
    """A transformer whose decoder blocks project the memory when they run. Before that, their weights are sharded."""

    def start(self, memory: Memory | None = None) -> DecoderState:
        if memory is None:
            return super().start()
        unprojected = memory.states.unsqueeze(1)  # in the layout of one head
        return DecoderState(tuple(KeysValues(unprojected, unprojected) for _ in self.decoder), memory.mask)


def _project_memory(block: DecoderBlock, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    x, past, mask, memory, *rest = inputs
    if memory is not None:
        memory = block.memory_keys_values(memory.keys.squeeze(1))
    return x, past, mask, memory, *rest


def _detach_cache(block: DecoderBlock, inputs: tuple[Any, ...], outputs: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """Detach the KV cache: one step reads the whole target, so no gradient flows back through it."""
    x, kv = outputs
    return x, KeysValues(kv.keys.detach(), kv.values.detach())


def _full_tensor(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
