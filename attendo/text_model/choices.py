"""From decoding settings to what a search is made of: a strategy, rules, a ranking, an engine."""

import copy
from collections.abc import Mapping, Sequence

import torch

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.constrained import ConstrainedBeam
from attendo.decode.diverse import DiverseBeam
from attendo.decode.engines import CachedEngine, Engine, FastEngine, TextbookEngine
from attendo.decode.ensemble import Ensemble
from attendo.decode.ranking import Ranking
from attendo.decode.rules import BannedPhrases, Forbid, LeastLength, NoRepeatNgram, Prefix, RepetitionPenalty
from attendo.decode.search import Rule, Strategy
from attendo.decode.shaping import Shape
from attendo.decode.strategies import Greedy, Sample
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.text_model.networks import Reader
from attendo.text_model.searching import SearchEngine

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Phrases = Sequence[Sequence[int]]


def ranking_of(config: GenerationConfig) -> Ranking:
    return Ranking(config.normalise, config.length_penalty, config.counts_eos, config.coverage_penalty)


def strategy_of(config: GenerationConfig, count: int, constraints: Mapping[int, Phrases] | None = None) -> Strategy:
    """`count` is how many hypotheses are needed; `constraints` are phrases by the number of their request."""
    ranking = ranking_of(config)
    if constraints:
        return ConstrainedBeam(config.beam, ranking, config.stop, config.patience, constraints)
    if config.sample:
        shape = Shape(config.temperature, config.top_k, config.top_p, config.min_p, config.typical)
        return Sample(count, config.seed, shape)
    if config.beam == 1:
        return Greedy()
    if config.groups > 1:
        return DiverseBeam(config.beam, config.groups, config.diversity, ranking, config.stop)
    return Beam(config.beam, ranking, config.stop, config.patience)


def rules_of(config: GenerationConfig, banned: Phrases = (), prefix: bool = False, least: bool = False) -> list[Rule]:
    """`prefix`, `least`: whether some answer is asked to begin with something, or to have so many tokens at least.

    Rules change what the ones before left: a penalty comes before what forbids, and a prefix last.
    """
    rules: list[Rule] = [Forbid()]
    if config.repetition_penalty != 1:
        rules.append(RepetitionPenalty(config.repetition_penalty))
    if config.no_repeat_ngram:
        rules.append(NoRepeatNgram(config.no_repeat_ngram))
    if banned:
        rules.append(BannedPhrases(tuple(map(tuple, banned))))
    if least:
        rules.append(LeastLength())
    if prefix:
        rules.append(Prefix())
    return rules


def engine_of(config: GenerationConfig, reader: Reader, constrained: bool = False) -> Engine:
    """Where the host must see every step, and for ensembles, the plain search."""
    if plain := _plain_reason(config, reader, constrained):
        if config.engine in ("fast", "textbook"):
            raise UsageError(f"{plain} and the engine {config.engine} exclude each other: use cached, or auto")
        return search_engine_of(config, reader)
    network = in_precision(config, reader)
    assert isinstance(network, Transformer)  # an ensemble has had its reason
    match config.engine:
        case "textbook":
            return TextbookEngine(network, config.batch_tokens)
        case "auto" | "cached" if config.engine == "cached" or not network.output.weight.is_cuda:
            return CachedEngine(network, config.batch_tokens)
        case _:
            return FastEngine(network, config.batch_tokens)


def search_engine_of(config: GenerationConfig, reader: Reader) -> SearchEngine:
    device = networks_of(reader)[0].output.weight.device
    return SearchEngine(in_precision(config, reader), device, config.batch_tokens, config.coverage_penalty > 0)


def in_precision(config: GenerationConfig, reader: Reader) -> Reader:
    """With networks of their own where the precision is another one."""
    kind, networks = _TYPES.get(config.precision), networks_of(reader)
    if kind is None or all(each.output.weight.dtype == kind for each in networks):
        return reader
    copies = [copy.deepcopy(each).to(kind) for each in networks]
    return Ensemble(copies, reader.weights, reader.how) if isinstance(reader, Ensemble) else copies[0]


def networks_of(reader: Reader) -> list[Transformer]:
    members = reader.members if isinstance(reader, Ensemble) else (reader,)
    return [each for each in members if isinstance(each, Transformer)]


def _plain_reason(config: GenerationConfig, reader: Reader, constrained: bool) -> str:
    """Why the engines of single networks will not do; nothing where they will."""
    if not isinstance(reader, Transformer):
        return "an ensemble"
    if config.coverage_penalty > 0:
        return "coverage_penalty"
    return "constraints" if constrained else ""
