"""Learning rates by step: straight up to a peak, then down in one of several ways. Steps count from 1."""

import math

from attendo.train.config import DEFAULT_PEAK, TrainConfig


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """The rate of one step. `d_model` matters to noam alone, whose peak follows from it."""
    peak = peak_rate(config, d_model)
    if step < config.warmup:
        return peak * step / config.warmup
    return peak * _share(step, config)


def peak_rate(config: TrainConfig, d_model: int) -> float:
    """The highest rate. Noam's is 1/√(d_model · warmup) (section 5.3 of the paper)."""
    if config.schedule == "noam":
        return (d_model * config.warmup) ** -0.5
    return DEFAULT_PEAK if config.peak_lr is None else config.peak_lr


def _share(step: int, config: TrainConfig) -> float:
    """What is left of the peak after the warm-up."""
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
    """0 at the peak, 1 at the last step; steps behind the last stay there."""
    return min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
