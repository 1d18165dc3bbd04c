"""Learning rates by step. Steps count from 1."""


def inverse_square_root(step: int, peak: float, warmup: int) -> float:
    """Straight up to `peak` over `warmup` steps, then down with 1/√step (section 5.3 of the paper)."""
    if step < warmup:
        return peak * step / warmup
    return peak * (max(warmup, 1) / step) ** 0.5
