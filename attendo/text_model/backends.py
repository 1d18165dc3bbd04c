"""The backend interface for computing a network, the PyTorch backend, and exported folders."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.continuous_batch import ContinuousBatch
from attendo.decode.coverage import CoverageNetwork
from attendo.decode.engines import CachedEngine, Engine, FastEngine, OutOfMemoryRetry, TextbookEngine
from attendo.decode.graph_network import GraphNetwork
from attendo.decode.kinds import check_kind
from attendo.decode.networks import EditedNetwork, Ensemble, TappedNetwork, WrappedNetwork
from attendo.decode.parallel import ParallelEngine, searches_by_token
from attendo.decode.search import Rule, Seq2SeqNetwork, StaticNetwork, Strategy
from attendo.decode.speculative import AutoregressiveDraft, ParallelDraft, SpeculativeEngine
from attendo.errors import ErrorList, MessagePart, UsageError
from attendo.model.edits import NetworkEdits
from attendo.model.head_scaling import HeadScales, ScaledHeads
from attendo.model.parallel import ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.nn.attention import without_cudnn_attention
from attendo.nn.cpu_threads import tune_threads
from attendo.nn.devices import configure_cpu_bf16
from attendo.text import Tokenizer
from attendo.text_model.options import GenerateOptions
from attendo.text_model.results import ScoredTarget
from attendo.text_model.scoring import score_ctc_targets, score_targets

NATIVE_ENGINES = ("textbook", "cached", "fast")  # engines of a model folder
EXTERNAL_ENGINES = ("onnx", "ctranslate2")  # engines of exported folders, named after the format
NATIVE_SEARCH_ENGINES = ("onnx", "cached")  # engines that support every search
# A draft need not be the best answer of its network. More passes take longer than they save.
_DRAFT_SETTINGS: dict[str, dict[str, Any]] = {"masked": {"passes": 2, "length_candidates": 1}}
_MAX_LINKS = 1 << 28  # numbers of one sentence: 1 GB in float32
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@runtime_checkable
class Backend(Protocol):
    """The interface that a backend must implement."""

    @property
    def name(self) -> str:
        """`torch`, or one of `EXTERNAL_ENGINES`."""

    @property
    def device(self) -> torch.device: ...

    @property
    def max_sequence_length(self) -> int | None:
        """Maximum source and target tokens, without eos or bos. None if unlimited."""

    def defaults(self, config: GenerationConfig, options: Mapping[str, Any]) -> GenerationConfig:
        """Return the default settings for a call with these options."""

    def check(self, options: GenerateOptions, config: GenerationConfig) -> None:
        """Raise a `UsageError` for an unsupported option. It names the option and the engines that support it."""

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine: ...

    def make_batch(self, config: GenerationConfig, strategy: Strategy, rules: Sequence[Rule]) -> ContinuousBatch | None:
        """Return a batch for one sentence, whose frontier can be read, or None if the backend searches itself."""

    def network(self, config: GenerationConfig) -> Seq2SeqNetwork | None:
        """Return a network that computes the logits of every token, or None if the backend exposes none."""

    def score(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        """Score given targets token by token, in the order of `pairs`."""

    def inference_mode(self) -> AbstractContextManager[None]:
        """Return a context manager for generation and scoring."""


@dataclass(frozen=True)
class ExportedFolder:
    """The content of an exported folder, except the network."""

    folder: Path
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    generation: dict[str, Any]
    scores: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)


def drop_engine_option(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the name of an external engine, which must match the format of the folder."""
    engine = options.get("engine")
    if engine in EXTERNAL_ENGINES and backend not in EXTERNAL_ENGINES:
        raise UsageError("model_folder_not_exported", engine=engine)
    if backend not in EXTERNAL_ENGINES:
        return dict(options)
    if engine in EXTERNAL_ENGINES and engine != backend:
        raise UsageError("export_engine_mismatch", runtime=backend, engine=engine)
    if engine in NATIVE_ENGINES:
        raise UsageError("engine_needs_model_folder", engine=engine, runtime=backend)
    return {name: value for name, value in options.items() if name != "engine"}


def make_option_error(engine: str, options: Mapping[str, Sequence[str]]) -> UsageError:
    """Build the error for unsupported `options`, each with the engines that support it."""
    by_engines: dict[tuple[str, ...], list[str]] = {}
    for option, engines in options.items():
        by_engines.setdefault(tuple(engines), []).append(option)
    reasons = [
        MessagePart("engine_option_alternatives", options=", ".join(names), engines=", ".join(engines))
        for engines, names in by_engines.items()
    ]
    return UsageError("engine_option_unsupported", engine=engine, reasons=ErrorList(reasons))


class TorchBackend:
    """The PyTorch backend, for one network, a tapped network or an ensemble.

    With a `draft`, another network, searches of one row use speculative decoding.
    """

    name = "torch"

    def __init__(self, network: Seq2SeqNetwork, draft: Transformer | None = None) -> None:
        self._network, self._draft = network, draft

    @property
    def networks(self) -> list[Transformer]:
        return member_networks(self._network)

    @property
    def device(self) -> torch.device:
        return next(self.networks[0].parameters()).device

    @property
    def max_sequence_length(self) -> int | None:
        networks = self.networks if self._draft is None else [*self.networks, self._draft]
        limits = [each.config.max_length - 1 for each in networks if each.config.positions == "learned"]
        limits += [max_graph_source(each) for each in networks if isinstance(each, ParallelTransformer) and each.links]
        return min(limits, default=None)

    @property
    def heads(self) -> HeadScales:
        """The scaled heads."""
        if isinstance(self._network, EditedNetwork):
            return self._network.heads.heads
        tap = self._network.tap if isinstance(self._network, TappedNetwork) else None
        return tap.heads if isinstance(tap, ScaledHeads) else {}

    @property
    def edits(self) -> NetworkEdits:
        return self._network.edits if isinstance(self._network, EditedNetwork) else NetworkEdits()

    def defaults(self, config: GenerationConfig, options: Mapping[str, Any]) -> GenerationConfig:
        engine = options.get("engine", config.engine)
        if options.get("compile") and (engine in ("cached", "textbook") or (engine == "auto" and self._on_cpu)):
            chosen = engine if engine != "auto" else "cached (which auto selects on a CPU)"
            raise UsageError("compile_engine_conflict", engine=chosen)
        return config

    @property
    def _on_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def kind(self) -> str:
        """The kind of the network, as in its config."""
        return self.networks[0].config.kind

    def check(self, options: GenerateOptions, config: GenerationConfig) -> None:
        """Reject alignments with scaled heads, and options that the kind of the network does not have."""
        check_kind(self.kind, options, config)
        if self._draft is not None:
            check_draft_options(options, config)
        if options.reads_attention and isinstance(self._network, WrappedNetwork):
            raise UsageError("alignments_scaled_heads_conflict")

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        network = with_precision(config, self._network)  # convert once: the engine may be rebuilt on OOM
        if self._draft is not None and isinstance(network, Transformer):
            return make_speculative_engine(config, network, self._draft)

        def make(positions: int) -> Engine:
            return make_engine(config.override(batch_tokens=positions), network, constrained)

        return OutOfMemoryRetry(make, config.resolve_batch_tokens(on_gpu=self.device.type == "cuda"))

    def make_batch(self, config: GenerationConfig, strategy: Strategy, rules: Sequence[Rule]) -> ContinuousBatch | None:
        network = self.network(config)
        if network is None or (self.kind == "graph" and not searches_by_token(config, strategy, rules)):
            return None
        return ContinuousBatch(with_coverage(config, network), strategy, rules, max_sentences=1)

    def network(self, config: GenerationConfig) -> Seq2SeqNetwork | None:
        network = with_precision(config, self._network)
        if isinstance(network, ParallelTransformer):
            return GraphNetwork(network) if self.kind == "graph" else None
        return network

    def score(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        network = self._network
        if not isinstance(network, ParallelTransformer):
            return score_targets(pairs, network, self.device, tokenizer)
        if self.kind == "masked":
            raise UsageError("masked_model_has_no_likelihood")
        if self.kind == "ctc":
            return score_ctc_targets(pairs, network, tokenizer)
        return score_targets(pairs, GraphNetwork(network), self.device, tokenizer, network.upsample)

    @contextmanager
    def inference_mode(self) -> Iterator[None]:
        networks = self.networks if self._draft is None else [*self.networks, self._draft]
        with tune_threads() if self._on_cpu else nullcontext(), eval_mode(*networks):
            yield


def make_engine(config: GenerationConfig, base_network: Seq2SeqNetwork, constrained: bool = False) -> Engine:
    """Build an engine. Constraints need the `cached` engine, because the host must see every step."""
    on_gpu = member_networks(base_network)[0].device.type == "cuda"
    kind = config.engine if config.engine != "auto" else "fast" if on_gpu and not constrained else "cached"
    if constrained and kind != "cached":
        raise UsageError("constraints_engine_conflict", engine=kind)
    network, positions = with_precision(config, base_network), config.resolve_batch_tokens(on_gpu)
    if isinstance(network, ParallelTransformer):
        return ParallelEngine(network, config, positions, captured=kind == "fast", explicit=kind == "textbook")
    if kind == "textbook":
        if not isinstance(network, Transformer) or config.coverage_penalty > 0:
            feature = "coverage_penalty" if isinstance(network, Transformer) else _feature_name(network)
            raise UsageError("textbook_engine_conflict", feature=feature)
        return TextbookEngine(network, positions)
    network = with_coverage(config, network)
    if kind != "fast":
        return CachedEngine(network, positions)
    assert isinstance(network, StaticNetwork)  # a graph has its own engine
    return FastEngine(network, positions, config.compile)


def max_graph_source(network: ParallelTransformer) -> int:
    """Return the longest source of a graph: its links are a number per head and pair of vertices."""
    return math.isqrt(_MAX_LINKS // network.config.num_heads) // network.upsample - 1


def make_speculative_engine(config: GenerationConfig, network: Transformer, draft: Transformer) -> SpeculativeEngine:
    """Build the engine of a network that verifies the tokens of a draft."""
    (drafting,) = member_networks(with_precision(config, draft))
    on_gpu = network.device.type == "cuda"
    captured = config.engine == "fast" or (config.engine == "auto" and on_gpu)
    if not isinstance(drafting, ParallelTransformer):
        return SpeculativeEngine(network, AutoregressiveDraft(drafting), captured)
    quick = GenerationConfig(**_DRAFT_SETTINGS.get(draft.config.kind, {}))
    engine = ParallelEngine(drafting, quick, config.resolve_batch_tokens(on_gpu), captured)
    return SpeculativeEngine(network, ParallelDraft(engine), captured)


def check_draft_options(options: GenerateOptions, config: GenerationConfig) -> None:
    """Raise a `UsageError` for searches that speculative decoding does not have."""
    several = {
        "mbr": config.mbr != "none",
        "beam": config.beam > 1 and not config.sample,
        "n_best": options.n_best > 1,
        "constraints": bool(options.constraints),
        "glossary": options.glossary is not None,
        "coverage_penalty": config.coverage_penalty > 0,
        "compile": config.compile,
    }
    if given := [name for name, is_given in several.items() if is_given]:
        raise UsageError("draft_option_conflict", option=given[0])
    if config.engine == "textbook":
        raise UsageError("draft_engine_conflict", engine=config.engine)


def with_precision(config: GenerationConfig, network: Seq2SeqNetwork) -> Seq2SeqNetwork:
    """Return the network, or a copy if the precision differs."""
    kind, networks = _DTYPES.get(config.precision), member_networks(network)
    for each in networks if kind == torch.float16 else ():
        each.config.check_fp16()
    for each in networks:
        configure_cpu_bf16(each.device, kind or each.output.weight.dtype)
    if kind is None or all(each.output.weight.dtype == kind for each in networks):
        return network
    copies = [copy.deepcopy(each).to(kind) for each in networks]
    if isinstance(network, Ensemble):
        return Ensemble(copies, network.weights, network.how)
    if isinstance(network, EditedNetwork):
        return EditedNetwork(copies[0], network.heads, network.edits)
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
    bare = (each.network if isinstance(each, WrappedNetwork) else each for each in members)
    return [each for each in bare if isinstance(each, Transformer)]


def _feature_name(network: Seq2SeqNetwork) -> str:
    return "an ensemble" if isinstance(network, Ensemble) else "scaled heads"


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
