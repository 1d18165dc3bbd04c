"""Strategy, rules, ranking and engine built from a GenerationConfig; device and evaluation mode."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.constrained_beam import ConstrainedBeam, GoesOn, never
from attendo.decode.coverage import Covering
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.engines import CachedEngine, Engine, FastEngine, SearchEngine, TextbookEngine
from attendo.decode.networks import Ensemble, Tapped
from attendo.decode.ranking import Ranking
from attendo.decode.rules import (
    BannedPhrases,
    EndAtLimit,
    Forbid,
    Given,
    LeastLength,
    NoRepeatNgram,
    Prefix,
    Renormalise,
    RepetitionPenalty,
)
from attendo.decode.search import Network, Rule, Strategy
from attendo.decode.strategies import Greedy, Sample, Shape
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.nn.devices import settle_bf16
from attendo.text import BOS, PAD, UNK

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Phrases = Sequence[Sequence[int]]


@runtime_checkable
class Reader(Protocol):
    """What reads a source and steps through a target: a network, or an ensemble of them."""

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Any: ...

    def start(self, memory: Any) -> Any: ...

    def step(self, ids: Int[Tensor, "R T"], state: Any) -> tuple[Float[Tensor, "R T V"], Any]: ...


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Without dropout, for sentences of any length; afterwards every part is in the mode it was in."""
    in_training = [module for network in networks for module in network.modules() if module.training]
    for module in in_training:
        module.training = False
    try:
        with kernels_for_any_shape():
            yield
    finally:
        for module in in_training:
            module.training = True


def longest_source(networks: Sequence[Transformer]) -> int | None:
    """Tokens that every one of them can read, and say, beside eos or bos; None where there is no end to them."""
    learned = [each.config.max_length - 1 for each in networks if each.config.positions == "learned"]
    return min(learned, default=None)


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise UsageError("unknown_device", name=name)
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UsageError("cuda_device_unavailable", name=name, count=torch.cuda.device_count())
    return torch.device(name)


def ranking_of(config: GenerationConfig) -> Ranking:
    length = config.length_penalty
    return Ranking(config.normalise, length, config.counts_eos, config.coverage_penalty, config.word_penalty)


def strategy_of(
    config: GenerationConfig, count: int, constraints: Mapping[int, Phrases] | None = None, goes_on: GoesOn = never
) -> Strategy:
    """`count` is how many hypotheses are needed; `constraints` are phrases by the number of their request.

    `goes_on` tells whether a token behind a phrase makes its last word longer.
    """
    ranking, free_end = ranking_of(config), config.at_limit == "free"
    if constraints:
        return ConstrainedBeam(config.beam, ranking, config.stop, config.patience, constraints, goes_on)
    if config.sample:
        shape = Shape(config.temperature, config.top_k, config.top_p, config.min_p, config.typical)
        return Sample(count, config.seed, shape, free_end)
    if config.beam == 1:
        return Greedy(free_end)
    if config.groups > 1:
        return DiverseBeam(config.beam, config.groups, config.diversity, ranking, config.stop)
    return Beam(config.beam, ranking, config.stop, config.patience, needed=count, free_end=free_end)


def rules_of(config: GenerationConfig, banned: Phrases = (), prefix: bool = False, least: bool = False) -> list[Rule]:
    """`prefix`, `least`: whether some answer is asked to begin with something, or to have so many tokens at least.

    Rules change what the ones before left: a penalty comes before what forbids, and a prefix behind it.
    """
    rules: list[Rule] = []
    if config.repetition_penalty != 1:
        rules.append(RepetitionPenalty(config.repetition_penalty, config.repetition_of == "logits"))
    rules.append(Forbid() if config.allow_unk else Forbid((PAD, BOS, UNK)))
    if config.no_repeat_ngram:
        rules.append(NoRepeatNgram(config.no_repeat_ngram))
    if banned:
        rules.append(BannedPhrases(tuple(map(tuple, banned))))
    if least:
        rules.append(LeastLength())
    if config.at_limit == "end":
        rules.append(EndAtLimit())
    if prefix:
        rules.append(Prefix())
    if prefix and config.target_prefix:
        rules.append(Given(len(config.target_prefix)))
    if config.renormalise:
        rules.append(Renormalise())
    return rules


def engine_of(config: GenerationConfig, reader: Reader, constrained: bool = False) -> Engine:
    """Constraints need the plain search, because the host must see every step."""
    on_gpu = networks_of(reader)[0].device.type == "cuda"
    kind = config.engine if config.engine != "auto" else "fast" if on_gpu and not constrained else "cached"
    if constrained and kind != "cached":
        raise UsageError("constraints_engine_conflict", engine=kind)
    network, positions = in_precision(config, reader), config.positions(on_gpu)
    if kind == "fast":
        return FastEngine(covering(config, network), positions, config.compile)
    if constrained or not isinstance(network, Transformer) or config.coverage_penalty > 0:
        if kind == "textbook":
            what = "coverage_penalty" if isinstance(network, Transformer) else _kind(network)
            raise UsageError("textbook_engine_conflict", feature=what)
        return search_engine_of(config, reader)
    return TextbookEngine(network, positions) if kind == "textbook" else CachedEngine(network, positions)


def search_engine_of(config: GenerationConfig, reader: Reader) -> SearchEngine:
    network = covering(config, in_precision(config, reader))
    return SearchEngine(network, config.positions(network.device.type == "cuda"))


def in_precision(config: GenerationConfig, reader: Reader) -> Reader:
    """With networks of their own where the precision is another one."""
    kind, networks = _TYPES.get(config.precision), networks_of(reader)
    for each in networks:
        settle_bf16(each.device, kind or each.output.weight.dtype)
    if kind is None or all(each.output.weight.dtype == kind for each in networks):
        return reader
    copies = [copy.deepcopy(each).to(kind) for each in networks]
    if isinstance(reader, Ensemble):
        return Ensemble(copies, reader.weights, reader.how)
    return Tapped(copies[0], reader.tap) if isinstance(reader, Tapped) else copies[0]


def covering(config: GenerationConfig, reader: Reader) -> Network:
    """The same, keeping count of attention where that counts."""
    if config.coverage_penalty > 0:
        if not isinstance(reader, Transformer):
            raise UsageError("coverage_penalty_conflict", feature=_kind(reader))
        return Covering(reader)
    assert isinstance(reader, Network)  # networks and ensembles are
    return reader


def networks_of(reader: Reader) -> list[Transformer]:
    members = reader.members if isinstance(reader, Ensemble) else (reader,)
    bare = (each.network if isinstance(each, Tapped) else each for each in members)
    return [each for each in bare if isinstance(each, Transformer)]


def _kind(reader: Reader) -> str:
    return "an ensemble" if isinstance(reader, Ensemble) else "scaled heads"
