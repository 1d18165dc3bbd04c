"""The optimizer: which weights change and decay, and how its memory is named in a file."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.train.config import Part, TrainConfig

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_MODULES: dict[Part, tuple[str, ...]] = {
    "embeddings": ("source", "target"),
    "encoder": ("encoder", "encoder_norm"),
    "decoder": ("decoder", "decoder_norm"),
    "output": ("output",),
}


def freeze(network: nn.Module, parts: tuple[Part, ...]) -> None:
    """The weights of these parts get no gradient. A part without weights of its own is a `UsageError`."""
    for part in parts:
        modules = [getattr(network, name, None) for name in _MODULES[part]]
        weights = [weight for module in modules if isinstance(module, nn.Module) for weight in module.parameters()]
        if not weights:
            raise UsageError("frozen_part_without_weights", part=part)
        for weight in weights:
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in network.parameters()):
        raise UsageError("all_weights_frozen", parts=", ".join(parts))


def make_optimizer(network: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam or AdamW in one kernel. Vectors (norms and biases) are not pulled towards zero."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    device = weights[0].device
    on_gpu = device.type == "cuda"
    # On a GPU the rate is a tensor: a captured graph reads it anew at every replay.
    rate = torch.zeros((), device=device) if on_gpu else 0.0
    betas = (config.beta1, config.beta2)
    return kind(groups, lr=rate, betas=betas, eps=config.epsilon, fused=True, capturable=on_gpu)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """Its memory by the names of the weights: `exp_avg/decoder.0...`. Empty before the first step."""
    return {
        f"{moment}/{name}": optimizer.state[weight][moment]
        for name, weight in network.named_parameters()
        if weight in optimizer.state
        for moment in MOMENTS
    }


def expected_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Tensors shaped like its memory after a step, to compare a file with."""
    step = torch.zeros(())
    return {
        f"{moment}/{name}": step if moment == "step" else weight
        for name, weight in _trained(network)
        for moment in MOMENTS
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, weight in _trained(network):
        optimizer.state[weight] = {moment: tensors[f"{moment}/{name}"].to(weight.device).clone() for moment in MOMENTS}


def _trained(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, weight) for name, weight in network.named_parameters() if weight.requires_grad)
