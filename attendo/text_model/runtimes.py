"""What computes the network of a text model: torch here, or the runtime that a folder was exported to."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.errors import UsageError
from attendo.text import Tokenizer
from attendo.text_model.networks import Reader
from attendo.text_model.results import ScoredTarget
from attendo.text_model.searching import SearchEngine
from attendo.text_model.wishes import Wishes

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
