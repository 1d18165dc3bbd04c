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
    """Which process this is, of how many. Every rank works on its own rows of the same batches."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def wrap_ddp(self, network: nn.Module) -> nn.Module:
        """The network that exchanges gradients with the other ranks while it goes backward."""
        return network if self.size == 1 else DistributedDataParallel(network)

    def sum(self, value: Tensor) -> Tensor:
        """Of all ranks, on all ranks."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def broadcast_bool(self, decision: bool) -> bool:
        """What the leading rank decided, on all ranks."""
        return bool(self.broadcast(float(decision)))

    def broadcast(self, value: float) -> float:
        """What the leading rank found, on all ranks."""
        if self.size == 1:
            return value
        said = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(said, src=0)
        return said.item()

    def any(self, decision: bool) -> bool:
        """Whether any rank decided so, on all ranks."""
        return bool(self.sum(torch.tensor([int(decision)])) > 0)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of every rank, in order of rank."""
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
    """The world that torchrun's environment describes, and this rank's device; one process alone without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Distributed(), device
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    # gloo beside nccl: decisions and gathered random states are small tensors on the CPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Distributed(rank, size), device
    finally:
        dist.destroy_process_group()


class ReplicatedWeights:
    """`network` is the one whose weights learn; here it is the very one that is validated and saved."""

    is_sharded = False

    def __init__(self, network: Transformer) -> None:
        self.network = network

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights, or what is shaped like them, as a checkpoint holds them. All ranks must ask together."""
        return tensors

    def local_shards(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of the tensors of a checkpoint, what this rank holds."""
        return tensors

    def global_norm(self, norm: Tensor) -> Tensor:
        """The norm of all gradients, given that of those at hand."""
        return norm

    def materialise(self) -> None:
        """See to it that the network to be validated and saved has the weights that were learned."""

    def release(self) -> None:
        """It is not needed for a while."""

    @contextmanager
    def full_weights(self) -> Iterator[None]:
        self.materialise()
        try:
            yield
        finally:
            self.release()
