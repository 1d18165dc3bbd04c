"""Process group of a run (torchrun) and replicated weights."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from attendo.model.transformer import Transformer


@dataclass(frozen=True)
class Distributed:
    """Rank of this process and number of processes. Every rank computes its own rows of the same batches."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints output."""
        return self.rank == 0

    def wrap_ddp(self, network: nn.Module) -> nn.Module:
        """Return the network wrapped in DDP, which reduces gradients over the ranks during the backward pass."""
        return network if self.size == 1 else DistributedDataParallel(network)

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all ranks, on all ranks."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def broadcast_bool(self, decision: bool) -> bool:
        """Return the decision of rank 0 on all ranks."""
        return bool(self.broadcast(float(decision)))

    def broadcast(self, value: float) -> float:
        """Return the value of rank 0 on all ranks."""
        if self.size == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(tensor, src=0)
        return tensor.item()

    def any(self, decision: bool) -> bool:
        """Return on all ranks whether the decision of any rank is True."""
        return bool(self.sum(torch.tensor([int(decision)])) > 0)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, ordered by rank."""
        if self.size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor)
        return parts

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def init_distributed(device: torch.device) -> Iterator[tuple[Distributed, torch.device]]:
    """Yield the process group described by torchrun's environment, and this rank's device. Default: one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Distributed(), device
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    # Use gloo in addition to nccl: decisions and gathered random states are small CPU tensors.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Distributed(rank, size), device
    finally:
        dist.destroy_process_group()


class ReplicatedWeights:
    """Weight placement without sharding. `network` is trained, validated and saved."""

    is_sharded = False

    def __init__(self, network: Transformer) -> None:
        self.network = network

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights, or tensors of the same shape, as a checkpoint stores them. Collective: call on all ranks."""
        return tensors

    def local_shards(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return this rank's shards of the tensors of a checkpoint."""
        return tensors

    def global_norm(self, norm: Tensor) -> Tensor:
        """Return the norm of all gradients, given the norm of the local ones."""
        return norm

    def materialise(self) -> None:
        """Copy the trained weights into the network that is validated and saved."""

    def release(self) -> None:
        """Free the memory of that network until the next `materialise`."""

    @contextmanager
    def full_weights(self) -> Iterator[None]:
        self.materialise()
        try:
            yield
        finally:
            self.release()
