"""Which products of a network lose most where they are rounded to bytes: each is rounded alone, on examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attendo.data.batch import Batch, Example, collate
from attendo.interop.onnx_bytes import steps_of
from attendo.interop.onnx_nodes import Ranges
from attendo.interop.onnx_ranges import PRODUCTS, sites_of
from attendo.model.transformer import Transformer
from attendo.text import PAD

_EXAMPLES = 32


@torch.no_grad()
def losses(network: Transformer, ranges: Ranges, examples: Sequence[Example]) -> dict[Any, float]:
    """For each site, how far the next tokens' probabilities move: KL divergence, summed over the examples."""
    was_training, sites = network.training, sites_of(network)
    batch = collate(examples[:_EXAMPLES]).to(network.device)
    try:
        network.eval()
        exact = _log_probs(network, batch)
        found = {}
        for site, size in ranges.items():
            with _Rounded({place for place, owner in sites.items() if owner is site}, size):
                found[site] = float((exact.exp() * (exact - _log_probs(network, batch))).sum())
    finally:
        network.train(was_training)
    return found


def _log_probs(network: Transformer, batch: Batch) -> Tensor:
    """Of what follows each target token; padding is left out."""
    logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
    return logits[batch.labels != PAD].log_softmax(-1)


class _Rounded(TorchFunctionMode):
    """Rounds the products with some matrices, known by where they lie in memory, as the graph does."""

    def __init__(self, matrices: set[int], size: float) -> None:
        super().__init__()
        self._matrices, self._size = matrices, size

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in PRODUCTS:
            product = PRODUCTS[func]
            x, matrix = args[product.given], args[product.matrix]
            if matrix.data_ptr() in self._matrices:
                changed = list(args)
                most = 127 if bool((x < 0).any()) else 255
                step = max(self._size, 1e-30) / most
                changed[product.given] = (x / step).round().clamp(-most, most) * step
                changed[product.matrix] = _in_bytes(matrix) if product.inside else _in_bytes(matrix.T).T
                args = tuple(changed)
        return func(*args, **(kwargs or {}))


def _in_bytes(matrix: Tensor) -> Tensor:
    step = steps_of(matrix)
    return (matrix / step).round() * step
