"""Random states: saved, restored and different for each rank."""

import random

import numpy as np
import pytest
import torch

from attendo.train.distributed import Distributed
from attendo.train.random_state import random_state_tensors, restore_random_state, seed_everything

CPU = torch.device("cpu")


def draw_numbers() -> list[float]:
    return [float(torch.rand(())), random.random(), float(np.random.rand())]


def test_a_restored_state_repeats_the_numbers() -> None:
    seed_everything(3, Distributed())
    draw_numbers()
    saved = {name: tensor.clone() for name, tensor in random_state_tensors(CPU, Distributed()).items()}
    assert saved.keys() == {"rank0/torch", "rank0/python", "rank0/numpy"}
    drawn = []
    for seed in (4, 5):  # twice, because the type checker also draws numbers while the state is saved
        seed_everything(seed, Distributed())
        assert restore_random_state(saved, CPU, Distributed())
        drawn.append(draw_numbers())
    assert drawn[0] == drawn[1]
    seed_everything(4, Distributed())
    assert not set(draw_numbers()) & set(drawn[0])


def test_the_seed_and_the_rank_determine_the_numbers() -> None:
    drawn = []
    for seed, rank in ((1, 0), (1, 0), (2, 0), (1, 1)):
        seed_everything(seed, Distributed(rank, 2))
        drawn.append(float(torch.rand(())))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("seed", [0, 2**32 + 5, 2**63 - 1])
def test_any_run_seed_is_accepted(seed: int) -> None:
    seed_everything(seed, Distributed())
    assert len(draw_numbers()) == 3


def test_a_missing_rank_keeps_its_state() -> None:
    seed_everything(3, Distributed())
    saved = random_state_tensors(CPU, Distributed())
    state = torch.get_rng_state()
    assert not restore_random_state(saved, CPU, Distributed(1, 2))
    assert torch.equal(torch.get_rng_state(), state)
