"""The state of all random generators of this process, as tensors for a checkpoint."""

import os
import random

import numpy as np
import torch
from torch import Tensor

from attendo.train.distributed import Distributed


def seed_everything(seed: int, world: Distributed) -> None:
    """Seed all generators. Dropout uses torch's, with a different seed per rank; attendo uses no other generator."""
    torch.manual_seed(seed + 7919 * world.rank)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def use_deterministic(enabled: bool) -> None:
    """Use only bitwise reproducible kernels. On a GPU cuBLAS needs the environment variable for this."""
    if enabled:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(enabled)


def random_state_tensors(device: torch.device, world: Distributed) -> dict[str, Tensor]:
    """Return the random state of every rank, because each samples its own dropout. Collective: call it on all ranks."""
    mine = _process_random_state(device)
    gathered = {name: world.all_gather(tensor) for name, tensor in mine.items()}
    return {f"rank{rank}/{name}": part[rank] for name, part in gathered.items() for rank in range(world.size)}


def restore_random_state(tensors: dict[str, Tensor], device: torch.device, world: Distributed) -> bool:
    """Restore the random state. Return False if the checkpoint has none for this rank or device."""
    prefix = f"rank{world.rank}/"
    mine = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if mine.keys() != _process_random_state(device).keys():
        return False
    torch.set_rng_state(mine["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(mine["cuda"], device)
    version, _, gauss = random.getstate()
    random.setstate((version, tuple(mine["python"].tolist()), gauss))
    name, _, _, *rest = np.random.get_state(legacy=True)
    keys = mine["numpy"].numpy()
    np.random.set_state((name, keys[:-1].astype(np.uint32), int(keys[-1]), *rest))
    return True


def _process_random_state(device: torch.device) -> dict[str, Tensor]:
    _, keys, index, *_ = np.random.get_state(legacy=True)
    assert isinstance(keys, np.ndarray)
    return {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(random.getstate()[1]),
        "numpy": torch.tensor([*keys.tolist(), index]),
        **({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}),
    }
