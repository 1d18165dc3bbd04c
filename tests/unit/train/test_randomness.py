"""The sources of chance: saved, restored, and each rank its own."""

import random

import numpy as np
import pytest
import torch

from attendo.train.distributed import Distributed
from attendo.train.random_state import random_state_tensors, restore_random_state, seed_everything

CPU = torch.device("cpu")


def draws() -> list[float]:
    return [float(torch.rand(())), random.random(), float(np.random.rand())]


def test_what_was_saved_is_drawn_again() -> None:
    seed_everything(3, Distributed())
    draws()
    saved = {name: tensor.clone() for name, tensor in random_state_tensors(CPU, Distributed()).items()}
    assert saved.keys() == {"rank0/torch", "rank0/python", "rank0/numpy"}
    drawn = []
    for seed in (4, 5):  # twice, because the checker of types draws too, while the state is being saved
        seed_everything(seed, Distributed())
        assert restore_random_state(saved, CPU, Distributed())
        drawn.append(draws())
    assert drawn[0] == drawn[1]
    seed_everything(4, Distributed())
    assert not set(draws()) & set(drawn[0])


def test_the_seed_decides_and_each_rank_draws_its_own() -> None:
    drawn = []
    for seed, rank in ((1, 0), (1, 0), (2, 0), (1, 1)):
        seed_everything(seed, Distributed(rank, 2))
        drawn.append(float(torch.rand(())))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("seed", [0, 2**32 + 5, 2**63 - 1])
def test_any_seed_of_a_run_is_a_seed(seed: int) -> None:
    seed_everything(seed, Distributed())
    assert len(draws()) == 3


def test_a_rank_that_was_not_there_is_told_and_keeps_its_own_state() -> None:
    seed_everything(3, Distributed())
    saved = random_state_tensors(CPU, Distributed())
    state = torch.get_rng_state()
    assert not restore_random_state(saved, CPU, Distributed(1, 2))
    assert torch.equal(torch.get_rng_state(), state)
