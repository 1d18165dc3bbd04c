"""Adam and AdamW, learning-rate schedules, frozen parts and the EMA of the weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model_folder import load_weights
from attendo.train.config import NetworkPart, TrainConfig

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_MODULES: dict[NetworkPart, tuple[str, ...]] = {
    "embeddings": ("source", "target"),
    "encoder": ("encoder", "encoder_norm"),
    "decoder": ("decoder", "decoder_norm"),
    "output": ("output",),
}


def freeze(network: nn.Module, parts: tuple[NetworkPart, ...]) -> None:
    """Disable gradients for the weights of these parts. Raise `UsageError` for a part without its own weights."""
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
    """Return a fused Adam or AdamW. Vectors (norms and biases) have no weight decay."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    device = weights[0].device
    on_gpu = device.type == "cuda"
    # On a GPU the learning rate is a tensor: a captured graph reads it at every replay.
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
    """Return the optimizer state by weight name: `exp_avg/decoder.0...`. Empty before the first step."""
    return {
        f"{moment}/{name}": optimizer.state[weight][moment]
        for name, weight in network.named_parameters()
        if weight in optimizer.state
        for moment in MOMENTS
    }


def make_optimizer_templates(network: nn.Module) -> dict[str, Tensor]:
    """Return tensors with the shapes of the optimizer state after one step, to check a file against."""
    step = torch.zeros(())
    return {
        f"{moment}/{name}": step if moment == "step" else weight
        for name, weight in _trainable_parameters(network)
        for moment in MOMENTS
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, weight in _trainable_parameters(network):
        optimizer.state[weight] = {moment: tensors[f"{moment}/{name}"].to(weight.device).clone() for moment in MOMENTS}


def _trainable_parameters(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, weight) for name, weight in network.named_parameters() if weight.requires_grad)


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """Return the learning rate of one step. Only noam depends on `d_model`."""
    peak = peak_rate(config, d_model)
    if step < config.warmup:
        return peak * step / config.warmup
    return peak * _decay_factor(step, config)


def peak_rate(config: TrainConfig, d_model: int) -> float:
    """Return the highest learning rate. For noam it is 1/√(d_model · warmup) (section 5.3 of the paper)."""
    if config.schedule == "noam":
        return (d_model * config.warmup) ** -0.5
    return config.default_peak_lr if config.peak_lr is None else config.peak_lr


def _decay_factor(step: int, config: TrainConfig) -> float:
    """Return the fraction of the peak rate after the warm-up."""
    match config.schedule:
        case "constant":
            return 1.0
        case "noam" | "inverse_square_root":
            return (max(config.warmup, 1) / step) ** 0.5
        case "linear":
            return config.final_lr + (1 - config.final_lr) * (1 - _progress(step, config))
        case "cosine":
            return config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * _progress(step, config))) / 2


def _progress(step: int, config: TrainConfig) -> float:
    """Return 0 at the peak and 1 from the last step on."""
    return min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))


class EMA:
    """EMA of the weights: average ← d · average + (1 - d) · weights. d grows to `decay` over the first steps."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = network
        self.decay = decay
        self.weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}

    @torch.no_grad()
    def update(self, step: int, skipped: Tensor) -> None:
        """Update the average. `skipped` is a device tensor: if it is 1, the average does not change."""
        decay = min(self.decay, (1 + step) / (10 + step))  # early weights are forgotten quickly
        keep = torch.where(skipped > 0, 1.0, decay)
        trained = {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}
        averages = [self.weights[name] for name in trained]
        keep = keep.to(averages[0].device)  # with offload, weights are on the CPU
        torch._foreach_mul_(averages, keep)
        torch._foreach_add_(averages, torch._foreach_mul(list(trained.values()), 1 - keep))

    @contextmanager
    def apply_temporarily(self) -> Iterator[None]:
        """Use the averaged weights temporarily, for validation and saving."""
        now = {name: weight.detach().clone() for name, weight in self.network.named_parameters()}
        self.apply_permanently()
        try:
            yield
        finally:
            load_weights(self.network, now)

    def apply_permanently(self) -> None:
        """Replace the network's weights by the averaged ones."""
        load_weights(self.network, self.weights)
