"""The backend protocol for computing a network, the PyTorch backend, and exported folders."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine, MakingDo, SearchEngine
from attendo.decode.networks import Tapped
from attendo.errors import UsageError
from attendo.model.head_scaling import HeadScales, ScaledHeads
from attendo.model.transformer import Transformer
from attendo.nn.cpu_threads import tune_threads
from attendo.text import Tokenizer
from attendo.text_model.options import Wishes
from attendo.text_model.results import ScoredTarget
from attendo.text_model.scoring import continued, scored
from attendo.text_model.search_setup import (
    Reader,
    engine_of,
    evaluating,
    in_precision,
    longest_source,
    networks_of,
    search_engine_of,
)

OWN = ("textbook", "cached", "fast")  # engines of a model folder
OUTSIDE = ("onnx", "ctranslate2")  # engines of exported folders, named as the format is
SEARCHED_BY_US = ("onnx", "cached")  # that do every search there is


@runtime_checkable
class Runtime(Protocol):
    """Another one needs no more than this to answer the calls of a text model."""

    @property
    def name(self) -> str:
        """`torch`, or one of `OUTSIDE`."""

    @property
    def device(self) -> torch.device: ...

    @property
    def longest(self) -> int | None:
        """Tokens that it can read, and say, beside eos or bos; None where there is no end to them."""

    def defaults(self, config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
        """What stands for the model's own settings in a call with these options."""

    def check(self, wishes: Wishes, config: GenerationConfig) -> None:
        """An option that it cannot honour is a `UsageError` that names it and the engines that can."""

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine: ...

    def watched(self, config: GenerationConfig) -> SearchEngine | None:
        """Our own search, which can be looked at after every token; None where it does the searching itself."""

    def reader(self, config: GenerationConfig) -> Reader | None:
        """What tells the logits of every token; None where it tells none."""

    def scored(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        """Given targets, token by token, in the order given."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Whatever must be so while it answers."""


@dataclass(frozen=True)
class ExportedFolder:
    """What a text model has of a folder that was exported: all but the network itself."""

    folder: Path
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    generation: dict[str, Any]
    scores: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)


def engine_left_out(runtime: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without the name of an engine from outside, which must be the one that the folder is for."""
    engine = options.get("engine")
    if engine in OUTSIDE and runtime not in OUTSIDE:
        raise UsageError("model_folder_not_exported", engine=engine)
    if runtime not in OUTSIDE:
        return dict(options)
    if engine in OUTSIDE and engine != runtime:
        raise UsageError("export_engine_mismatch", runtime=runtime, engine=engine)
    if engine in OWN:
        raise UsageError("engine_needs_model_folder", engine=engine, runtime=runtime)
    return {name: value for name, value in options.items() if name != "engine"}


def refusal(engine: str, options: Mapping[str, Sequence[str]]) -> UsageError:
    """`options` are what an engine cannot honour, each with the engines that can."""
    by_engines: dict[tuple[str, ...], list[str]] = {}
    for option, engines in options.items():
        by_engines.setdefault(tuple(engines), []).append(option)
    told = "; nor ".join(
        f"{', '.join(some)}: leave it out, or take {_any_of(engines)}" for engines, some in by_engines.items()
    )
    return UsageError("engine_option_unsupported", engine=engine, reasons=told)


def _any_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


class TorchRuntime:
    """One network, which may be tapped, or an ensemble of several."""

    name = "torch"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @property
    def networks(self) -> list[Transformer]:
        return networks_of(self._reader)

    @property
    def device(self) -> torch.device:
        return next(self.networks[0].parameters()).device

    @property
    def longest(self) -> int | None:
        return longest_source(self.networks)

    @property
    def heads(self) -> HeadScales:
        """Those that are scaled."""
        tap = self._reader.tap if isinstance(self._reader, Tapped) else None
        return tap.heads if isinstance(tap, ScaledHeads) else {}

    def defaults(self, config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
        engine = given.get("engine", config.engine)
        if given.get("compile") and (engine in ("cached", "textbook") or (engine == "auto" and self._on_cpu)):
            chosen = engine if engine != "auto" else "cached, which auto takes on a CPU"
            raise UsageError("compile_engine_conflict", engine=chosen)
        return config

    @property
    def _on_cpu(self) -> bool:
        return self.device.type == "cpu"

    def check(self, wishes: Wishes, config: GenerationConfig) -> None:
        """Everything is honoured by some engine, which `engine` chooses; but alignments are those of whole networks."""
        if wishes.alignments and isinstance(self._reader, Tapped):
            raise UsageError("alignments_scaled_heads_conflict")

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        reader = in_precision(config, self._reader)  # once, however often an engine is made

        def made(positions: int) -> Engine:
            return engine_of(config.changed(batch_tokens=positions), reader, constrained)

        return MakingDo(made, config.positions(on_gpu=self.device.type == "cuda"))

    def watched(self, config: GenerationConfig) -> SearchEngine:
        return search_engine_of(config, self._reader)

    def reader(self, config: GenerationConfig) -> Reader:
        return in_precision(config, self._reader)

    def scored(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        score = continued if self.networks[0].decoder_only else scored
        return score(pairs, self._reader, self.device, tokenizer)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        with tune_threads() if self._on_cpu else nullcontext(), evaluating(*self.networks):
            yield
