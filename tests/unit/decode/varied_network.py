"""An untrained network whose answers differ in length, and random requests for it."""

from collections.abc import Callable
from typing import Any

import torch

from attendo.decode.requests import DecodeRequest
from attendo.model.transformer import Transformer
from attendo.text import EOS

Make = Callable[..., Transformer]
NETWORKS: dict[str, dict[str, Any]] = {"encoder": {}, "prefix LM": {"num_encoder_layers": 0, "prefix_lm": True}}


def varied_network(make: Make, **changes: Any) -> Transformer:
    """Scales the logits so that many answers end before the limit."""
    network = make(tie="none", **changes)
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        network.output.weight[EOS].mul_(2.0)
    return network


def random_requests(count: int, limits: range) -> list[DecodeRequest]:
    """Requests with limits from this range and sources of 1 to 8 tokens."""
    generator = torch.Generator().manual_seed(count)
    requests = []
    for number in range(count):
        bounds = ((1, 9), (limits.start, limits.stop))
        length, limit = (int(torch.randint(low, high, (), generator=generator)) for low, high in bounds)
        requests.append(
            DecodeRequest(number, tuple(torch.randint(4, 17, (length,), generator=generator).tolist()), limit)
        )
    return requests
