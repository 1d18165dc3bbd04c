"""A single process. Several processes are tested in tests/reliability/test_ranks.py."""

import pytest
import torch
from torch import nn

from attendo.train.distributed import Distributed, init_distributed

CPU = torch.device("cpu")


def test_a_single_process_is_main_and_collectives_are_identities() -> None:
    world = Distributed()
    assert world.is_main
    assert not Distributed(1, 2).is_main
    assert (world.broadcast_bool(True), world.broadcast_bool(False), world.any(True), world.any(False)) == (
        True,
        False,
        True,
        False,
    )
    assert world.broadcast(0.1) == 0.1
    tensor = torch.tensor([1.0, 2.0])
    assert torch.equal(world.sum(tensor), tensor)
    assert world.all_gather(tensor) == [tensor]
    world.barrier()
    network = nn.Linear(2, 2)
    assert world.wrap_ddp(network) is network


@pytest.mark.parametrize("size", [None, "1"])
def test_a_single_process_does_not_join_a_group(monkeypatch: pytest.MonkeyPatch, size: str | None) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    with init_distributed(CPU) as (world, device):
        assert (world, device) == (Distributed(), CPU)
        assert not torch.distributed.is_initialized()
