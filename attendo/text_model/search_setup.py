"""Builds strategy, rules, ranking and engine from a GenerationConfig. Device and evaluation mode."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.constrained_beam import ConstrainedBeam, ExtendsLastWord, never_extends
from attendo.decode.coverage import CoverageNetwork
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.engines import CachedEngine, Engine, FastEngine, TextbookEngine
from attendo.decode.networks import Ensemble, TappedNetwork
from attendo.decode.ranking import Ranking
from attendo.decode.rules import (
    BannedPhrases,
    ForcedPrefix,
    ForceEosAtLimit,
    MinLength,
    NoRepeatNgram,
    Renormalise,
    RepetitionPenalty,
    SuppressTokens,
    UnscoredPrefix,
)
from attendo.decode.search import Rule, Seq2SeqNetwork, Strategy
from attendo.decode.strategies import Greedy, Sampling, SamplingFilter
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import without_cudnn_attention
from attendo.nn.devices import configure_cpu_bf16
from attendo.text import BOS, PAD, UNK

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PhraseIds = Sequence[Sequence[int]]


@contextmanager
def eval_mode(*networks: nn.Module) -> Iterator[None]:
    """Disable dropout, and cuDNN attention, which is slow if lengths vary.

    Afterwards every module is in its previous mode.
    """
    in_training = [module for network in networks for module in network.modules() if module.training]
    for module in in_training:
        module.training = False
    try:
        with without_cudnn_attention():
            yield
    finally:
        for module in in_training:
            module.training = True


def max_sequence_length(networks: Sequence[Transformer]) -> int | None:
    """Return the maximum source and target tokens that all networks support, without eos or bos. None if unlimited."""
    learned = [each.config.max_length - 1 for each in networks if each.config.positions == "learned"]
    return min(learned, default=None)


def pick_device(name: str) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind, number = parse_device(name, count)
    if kind == "cuda" and number >= count:
        raise UsageError("cuda_device_unavailable", name=name, count=count)
    return torch.device(kind if name == "auto" else name)


def parse_device(name: str, num_gpus: int) -> tuple[str, int]:
    """Return the type and the index of a device. `auto` is a GPU if there is one."""
    if name == "auto":
        return "cuda" if num_gpus else "cpu", 0
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise UsageError("unknown_device", name=name)
    return kind, int(number or 0)


def make_ranking(config: GenerationConfig) -> Ranking:
    length = config.length_penalty
    return Ranking(config.normalise, length, config.counts_eos, config.coverage_penalty, config.word_penalty)


def make_strategy(
    config: GenerationConfig,
    count: int,
    constraints: Mapping[int, PhraseIds] | None = None,
    extends_last_word: ExtendsLastWord = never_extends,
) -> Strategy:
    """Build the search strategy.

    `count` is the number of hypotheses needed. `constraints` are phrases by request id. `extends_last_word` returns
    whether a token after a phrase extends its last word.
    """
    ranking, free_end = make_ranking(config), config.at_limit == "any"
    if constraints:
        return ConstrainedBeam(config.beam, ranking, config.stop, config.patience, constraints, extends_last_word)
    if config.sample:
        shape = SamplingFilter(config.temperature, config.top_k, config.top_p, config.min_p, config.typical_p)
        return Sampling(count, config.seed, shape, free_end)
    if config.beam == 1:
        return Greedy(free_end)
    if config.beam_groups > 1:
        return DiverseBeam(config.beam, config.beam_groups, config.diversity_penalty, ranking, config.stop)
    return Beam(config.beam, ranking, config.stop, config.patience, num_hypotheses=count, free_end=free_end)


def make_rules(
    config: GenerationConfig, banned: PhraseIds = (), prefix: bool = False, min_length: bool = False
) -> list[Rule]:
    """Build the rules in the order in which they apply.

    `prefix` and `min_length`: whether any request has a forced prefix or a minimum length. Each rule changes the output
    of the previous one: penalties first, then bans, then the prefix.
    """
    rules: list[Rule] = []
    if config.repetition_penalty != 1:
        rules.append(RepetitionPenalty(config.repetition_penalty, config.repetition_of == "logits"))
    rules.append(SuppressTokens() if config.allow_unk else SuppressTokens((PAD, BOS, UNK)))
    if config.no_repeat_ngram_size:
        rules.append(NoRepeatNgram(config.no_repeat_ngram_size))
    if banned:
        rules.append(BannedPhrases(tuple(map(tuple, banned))))
    if min_length:
        rules.append(MinLength())
    if config.at_limit == "force_eos":
        rules.append(ForceEosAtLimit())
    if prefix:
        rules.append(ForcedPrefix())
    if prefix and config.target_prefix:
        rules.append(UnscoredPrefix(len(config.target_prefix)))
    if config.renormalise:
        rules.append(Renormalise())
    return rules


def make_engine(config: GenerationConfig, base_network: Seq2SeqNetwork, constrained: bool = False) -> Engine:
    """Build an engine. Constraints need the `cached` engine, because the host must see every step."""
    on_gpu = member_networks(base_network)[0].device.type == "cuda"
    kind = config.engine if config.engine != "auto" else "fast" if on_gpu and not constrained else "cached"
    if constrained and kind != "cached":
        raise UsageError("constraints_engine_conflict", engine=kind)
    network, positions = with_precision(config, base_network), config.resolve_batch_tokens(on_gpu)
    if kind == "textbook":
        if not isinstance(network, Transformer) or config.coverage_penalty > 0:
            feature = "coverage_penalty" if isinstance(network, Transformer) else _feature_name(network)
            raise UsageError("textbook_engine_conflict", feature=feature)
        return TextbookEngine(network, positions)
    network = with_coverage(config, network)
    return FastEngine(network, positions, config.compile) if kind == "fast" else CachedEngine(network, positions)


def with_precision(config: GenerationConfig, network: Seq2SeqNetwork) -> Seq2SeqNetwork:
    """Return the network, or a copy if the precision differs."""
    kind, networks = _DTYPES.get(config.precision), member_networks(network)
    for each in networks:
        configure_cpu_bf16(each.device, kind or each.output.weight.dtype)
    if kind is None or all(each.output.weight.dtype == kind for each in networks):
        return network
    copies = [copy.deepcopy(each).to(kind) for each in networks]
    if isinstance(network, Ensemble):
        return Ensemble(copies, network.weights, network.how)
    return TappedNetwork(copies[0], network.tap) if isinstance(network, TappedNetwork) else copies[0]


def with_coverage(config: GenerationConfig, network: Seq2SeqNetwork) -> Seq2SeqNetwork:
    """Return the network, wrapped to accumulate attention if there is a coverage penalty."""
    if config.coverage_penalty > 0:
        if not isinstance(network, Transformer):
            raise UsageError("coverage_penalty_conflict", feature=_feature_name(network))
        return CoverageNetwork(network)
    return network


def member_networks(network: Seq2SeqNetwork) -> list[Transformer]:
    members = network.members if isinstance(network, Ensemble) else (network,)
    bare = (each.network if isinstance(each, TappedNetwork) else each for each in members)
    return [each for each in bare if isinstance(each, Transformer)]


def _feature_name(network: Seq2SeqNetwork) -> str:
    return "an ensemble" if isinstance(network, Ensemble) else "scaled heads"
