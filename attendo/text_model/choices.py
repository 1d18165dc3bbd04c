"""From decoding settings to what a search is made of: a strategy, rules, a ranking, an engine."""

import copy
from collections.abc import Sequence

import torch

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine, Engine, FastEngine, TextbookEngine
from attendo.decode.ranking import Ranking
from attendo.decode.rules import Forbid
from attendo.decode.search import Rule, Strategy
from attendo.decode.shaping import Shape
from attendo.decode.strategies import Greedy, Sample
from attendo.model.transformer import Transformer

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def ranking_of(config: GenerationConfig) -> Ranking:
    return Ranking(config.normalise, config.length_penalty, config.counts_eos)


def strategy_of(config: GenerationConfig, n_best: int) -> Strategy:
    if config.sample:
        shape = Shape(config.temperature, config.top_k, config.top_p, config.min_p, config.typical)
        return Sample(n_best, config.seed, shape)
    if config.beam == 1:
        return Greedy()
    return Beam(config.beam, ranking_of(config), config.stop, config.patience)


def rules_of(config: GenerationConfig) -> Sequence[Rule]:
    return (Forbid(),)


def engine_of(config: GenerationConfig, network: Transformer) -> Engine:
    """With a network of its own where the precision is another one."""
    weight = network.output.weight
    kind = _TYPES.get(config.precision, weight.dtype)
    if kind != weight.dtype:
        network = copy.deepcopy(network).to(kind)
    match config.engine:
        case "textbook":
            return TextbookEngine(network, config.batch_tokens)
        case "auto" | "cached" if config.engine == "cached" or not weight.is_cuda:
            return CachedEngine(network, config.batch_tokens)
        case _:
            return FastEngine(network, config.batch_tokens)
