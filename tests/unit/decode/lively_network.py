"""An untrained network whose answers differ in length, and requests of different lengths for it."""

from collections.abc import Callable
from typing import Any

import torch

from attendo.decode.requests import DecodeRequest
from attendo.model.transformer import Transformer
from attendo.text import EOS

Make = Callable[..., Transformer]


def lively(make: Make, **changes: Any) -> Transformer:
    """Its logits lie so far apart that many answers end by themselves."""
    network = make(tie="none", **changes)
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        network.output.weight[EOS].mul_(2.0)
    return network


def some_requests(count: int, limits: range) -> list[DecodeRequest]:
    """With limits from this range, sources of up to 8 tokens."""
    dice = torch.Generator().manual_seed(count)
    made = []
    for number in range(count):
        bounds = ((1, 9), (limits.start, limits.stop))
        length, limit = (int(torch.randint(low, high, (), generator=dice)) for low, high in bounds)
        made.append(DecodeRequest(number, tuple(torch.randint(4, 17, (length,), generator=dice).tolist()), limit))
    return made
