"""How large the numbers are that each product of a network is given, seen on examples: what int8 is fitted to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attendo.data.batch import Example, collate
from attendo.interop.onnx_layers import MEMORY
from attendo.interop.onnx_nodes import Ranges
from attendo.model.transformer import Transformer
from attendo.nn.blocks import DecoderBlock
from attendo.text import CONTROL_PIECES

_EXAMPLES, _LENGTH = 64, 24  # of random ids, where there is nothing better
_BATCH = 32


@dataclass(frozen=True)
class Product:
    """A function of torch that multiplies: which argument is x, which the matrix, which dimension of it is summed."""

    given: int
    matrix: int
    inside: int


PRODUCTS: Mapping[Callable[..., Any], Product] = {F.linear: Product(0, 1, 1), torch._addmm_activation: Product(1, 2, 0)}


def observed(network: Transformer, examples: Sequence[Example]) -> Ranges:
    """The largest number, by its size, at every site of the graphs."""
    return {site: float(each.max()) for site, each in sizes(network, examples).items()}


@torch.no_grad()
def sizes(network: Transformer, examples: Sequence[Example]) -> dict[Any, Tensor]:
    """The same for every component of what the site is given."""
    watch, was_training = _Watch(sites_of(network)), network.training
    try:
        network.eval()
        for first in range(0, len(examples), _BATCH):
            batch = collate(examples[first : first + _BATCH]).to(network.device)
            with watch:
                network(batch.source_ids, batch.target_ids, batch.source_mask)
    finally:
        network.train(was_training)
    return watch.sizes


def random_examples(network: Transformer, seed: int = 1) -> list[Example]:
    """Ids by chance on both sides: for a network whose sentences nobody has."""
    generator, config = torch.Generator().manual_seed(seed), network.config
    sizes = [(max(size or 0, len(CONTROL_PIECES) + 1)) for size in (config.source_vocab_size, config.target_vocab_size)]
    length = min(_LENGTH, config.max_length - 1) if config.positions == "learned" else _LENGTH
    sides = [
        torch.randint(len(CONTROL_PIECES), size, (_EXAMPLES, length), generator=generator).tolist() for size in sizes
    ]
    return [Example(source, target) for source, target in zip(*sides, strict=True)]


class _Watch(TorchFunctionMode):
    """Sees every product, whoever computes it: each is known by where its matrix lies in memory."""

    def __init__(self, sites: Mapping[int, object]) -> None:
        super().__init__()
        self.sizes: dict[Any, Tensor] = {}
        self._sites = sites

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in PRODUCTS:
            product = PRODUCTS[func]
            self._note(self._sites.get(args[product.matrix].data_ptr()), args[product.given])
        return func(*args, **(kwargs or {}))

    def _note(self, site: object, x: Tensor) -> None:
        if site is not None:
            found = x.abs().flatten(0, -2).amax(0)
            self.sizes[site] = torch.maximum(found, self.sizes.get(site, found))


def sites_of(network: Transformer) -> dict[int, object]:
    """Every matrix by where it lies in memory, and the site whose x it multiplies."""
    sites: dict[int, object] = {
        module.weight.data_ptr(): module for module in network.modules() if isinstance(module, nn.Linear)
    }
    for block in network.decoder:
        if isinstance(block, DecoderBlock) and (attention := block.cross_attention) is not None:
            matrix = attention.project.weight
            sites[matrix.data_ptr()] = attention  # makes the queries, of another x than the rest
            sites[matrix[attention.num_heads * attention.d_key :].data_ptr()] = MEMORY
    return sites
