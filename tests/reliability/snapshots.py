"""Generated checkpoints for tests of how they are stored."""

import torch

from attendo.train.checkpoint import Snapshot


def snapshot(step: int) -> Snapshot:
    """A small snapshot that differs at every step."""
    generator = torch.Generator().manual_seed(step)
    return Snapshot(
        step=step,
        model={name: torch.randn(6, 5, generator=generator) for name in ("table", "bias")},
        optimizer={f"exp_avg/{name}": torch.randn(6, 5, generator=generator) for name in ("table", "bias")},
        random={"rank0/torch": torch.randint(0, 255, (64,), generator=generator, dtype=torch.uint8)},
        state={"tokens": 17 * step, "best": None},
        facts={"config_sha256": "0" * 64, "torch": torch.__version__},
    )


def equal(one: Snapshot, other: Snapshot) -> bool:
    tensors = all(
        getattr(one, part).keys() == getattr(other, part).keys()
        and all(torch.equal(getattr(one, part)[name], getattr(other, part)[name]) for name in getattr(one, part))
        for part in ("model", "optimizer", "random")
    )
    return tensors and (one.step, one.state) == (other.step, other.state)
