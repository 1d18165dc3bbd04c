"""How large the numbers are that each product of a network is given, seen on examples: what int8 is fitted to."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attendo.data.batch import Example, collate
from attendo.interop.onnx_layers import MEMORY
from attendo.interop.onnx_nodes import Ranges
from attendo.model.transformer import Transformer
from attendo.nn.blocks import DecoderBlock
from attendo.text import CONTROL_PIECES

_EXAMPLES, _LENGTH = 64, 24  # of random ids, where there is nothing better
_BATCH = 32


@torch.no_grad()
def observed(network: Transformer, examples: Sequence[Example]) -> Ranges:
    """The largest number, by its size, at every site of the graphs."""
    ranges: dict[Any, float] = {}

    def note(site: object, x: Tensor) -> None:
        ranges[site] = max(ranges.get(site, 0.0), float(x.abs().max()))

    hooks = [hook for module in network.modules() for hook in _hooks(module, note)]
    hooks.append(network.encoder_norm.register_forward_hook(lambda _, given, made: note(MEMORY, made)))
    was_training = network.training
    try:
        network.eval()
        for first in range(0, len(examples), _BATCH):
            batch = collate(examples[first : first + _BATCH]).to(network.device)
            network(batch.source_ids, batch.target_ids, batch.source_mask)
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    return ranges


def random_examples(network: Transformer, seed: int = 1) -> list[Example]:
    """Ids by chance on both sides: for a network whose sentences nobody has."""
    generator, config = torch.Generator().manual_seed(seed), network.config
    sizes = [(max(size or 0, len(CONTROL_PIECES) + 1)) for size in (config.source_vocab_size, config.target_vocab_size)]
    length = min(_LENGTH, config.max_length - 1) if config.positions == "learned" else _LENGTH
    sides = [
        torch.randint(len(CONTROL_PIECES), size, (_EXAMPLES, length), generator=generator).tolist() for size in sizes
    ]
    return [Example(source, target) for source, target in zip(*sides, strict=True)]


def _hooks(module: nn.Module, note: Callable[[object, Tensor], None]) -> list[Any]:
    if isinstance(module, nn.Linear):
        return [module.register_forward_pre_hook(lambda site, given: note(site, given[0]))]
    if isinstance(module, DecoderBlock) and module.cross_residual is not None:
        # Queries of cross-attention come from a part of a matrix: no module is called with what they are made of.
        before = module.cross_residual if module.cross_residual.pre_norm else module.self_residual
        site = module.cross_attention
        return [before.normalise.register_forward_hook(lambda _, given, made: note(site, made))]
    return []
