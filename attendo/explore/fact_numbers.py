"""Numbers that several facts are made of."""

import torch
from torch import Tensor

from attendo.text_model import Trace


def site_of(trace: Trace) -> str:
    """The last attention that was kept: to the source, where there is one."""
    return [name.removesuffix(".weights") for name in trace if name.endswith(".weights")][-1]


def queries_of(trace: Trace, site: str) -> Tensor:
    return trace.get(f"{site}.turned_queries", trace[f"{site}.queries"])


def keys_of(trace: Trace, site: str) -> Tensor:
    return trace.get(f"{site}.turned_keys", trace[f"{site}.keys"])


def value_width(trace: Trace) -> int:
    return trace.config.d_value or trace.config.d_model // trace.config.num_heads


def entropies(weights: Tensor) -> Tensor:
    return -torch.special.xlogy(weights, weights).sum(dim=-1).mean(dim=-1)


def row_of(numbers: list[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in numbers)
