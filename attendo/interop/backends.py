"""Backends for exported models, ONNX Runtime and CTranslate2, and their checks of decoding options."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.continuous_batch import ContinuousBatch
from attendo.decode.engines import Engine
from attendo.decode.search import Rule, Strategy
from attendo.errors import MessagePart, ModelError, UsageError
from attendo.interop.ctranslate2.engine import CTranslate2Engine
from attendo.interop.ctranslate2.folder import CTranslate2Model
from attendo.interop.ctranslate2.options import apply_ctranslate2_semantics, check_ctranslate2_options
from attendo.interop.errors import join_reasons
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.session import OnnxNetwork
from attendo.text import EOS, Tokenizer
from attendo.text_model import GenerateOptions, ScoredTarget
from attendo.text_model.backends import NATIVE_ENGINES, make_option_error
from attendo.text_model.options import split_options
from attendo.text_model.scoring import score_targets

MACHINE_SETTINGS = ("engine", "compile", "precision", "batch_tokens")  # depend on the machine, not on the model


def check_onnx_options(options: GenerateOptions, config: GenerationConfig) -> None:
    """Raise a `UsageError` for options that ONNX Runtime does not support."""
    requested = {
        "alignments": (options.alignments, NATIVE_ENGINES),
        "replace_unknown": (options.replace_unknown, NATIVE_ENGINES),
        "transfer_case": (options.transfer_case, NATIVE_ENGINES),
        "coverage_penalty": (config.coverage_penalty > 0, ("cached", "fast")),
        "compile": (config.compile, ("fast",)),
        f"precision {config.precision}": (config.precision != "auto", NATIVE_ENGINES),
    }
    if unsupported := {name: engines for name, (given, engines) in requested.items() if given}:
        raise make_option_error("onnx", unsupported)


class OnnxBackend:
    """ONNX Runtime runs the network and attendo the search. Options that need network internals are unsupported."""

    name = "onnx"
    device = torch.device("cpu")

    def __init__(self, network: OnnxNetwork) -> None:
        self._network = network

    @property
    def max_sequence_length(self) -> int | None:
        config = self._network.config
        return config.max_length - 1 if config.positions == "learned" else None

    def defaults(self, config: GenerationConfig, options: Mapping[str, Any]) -> GenerationConfig:
        return config

    def check(self, options: GenerateOptions, config: GenerationConfig) -> None:
        check_onnx_options(options, config)

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        return OnnxEngine(self._network, config.resolve_batch_tokens(on_gpu=False))

    def make_batch(self, config: GenerationConfig, strategy: Strategy, rules: Sequence[Rule]) -> ContinuousBatch:
        return ContinuousBatch(self._network, strategy, rules, max_sentences=1)

    def network(self, config: GenerationConfig) -> OnnxNetwork:
        return self._network

    def score(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        return score_targets(pairs, self._network, self.device, tokenizer)

    def inference_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class CTranslate2Backend:
    """CTranslate2 runs the network and the search, with its own beam semantics. Unsupported options raise an error."""

    name = "ctranslate2"

    def __init__(self, model: CTranslate2Model) -> None:
        self._model = model

    @property
    def device(self) -> torch.device:
        return torch.device(self._model.translator.device)

    @property
    def max_sequence_length(self) -> int:
        return self._model.max_length - 1

    def defaults(self, config: GenerationConfig, options: Mapping[str, Any]) -> GenerationConfig:
        return config if "preset" in options else apply_ctranslate2_semantics(config, options)

    def check(self, options: GenerateOptions, config: GenerationConfig) -> None:
        check_ctranslate2_options(options, config)

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        return CTranslate2Engine(self._model, config.resolve_batch_tokens(self.device.type == "cuda"))

    def make_batch(self, config: GenerationConfig, strategy: Strategy, rules: Sequence[Rule]) -> None:
        """Return None: CTranslate2 runs the whole search itself."""

    def network(self, config: GenerationConfig) -> None:
        """Return None: CTranslate2 returns logits only for the tokens it generates."""

    def score(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        source, target = self._model.names
        for pair in pairs:
            if pair.length > self._model.max_length:
                raise UsageError(
                    "export_pair_too_long",
                    source=len(pair.source),
                    target=len(pair.target),
                    limit=self.max_sequence_length,
                )
        results = self._model.translator.score_batch(
            [[source[each] for each in pair.source] for pair in pairs],
            [[target[each] for each in pair.target] for pair in pairs],
            max_input_length=0,
            max_batch_size=GenerationConfig().resolve_batch_tokens(self.device.type == "cuda"),
            batch_type="tokens",
        )
        return [
            ScoredTarget(tuple(tokenizer.pieces([*pair.target, EOS])), tuple(each.log_probs))
            for pair, each in zip(pairs, results, strict=True)
        ]

    def inference_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


def drop_machine_settings(generation: dict[str, Any]) -> dict[str, Any]:
    """Return the decoding settings without those that depend on the machine."""
    return {name: value for name, value in generation.items() if name not in MACHINE_SETTINGS}


def describe_ctranslate2_changes(generation: dict[str, Any]) -> list[MessagePart]:
    """Return notes on settings that CTranslate2 changes. Raise a `ModelError` if it does not support the defaults."""
    stored = GenerationConfig(**drop_machine_settings(generation))
    effective = apply_ctranslate2_semantics(stored, {})
    _check_defaults(effective, check_ctranslate2_options)
    changes = [
        MessagePart("setting_differs", name=name, value=getattr(effective, name), expected=getattr(stored, name))
        for name in _relevant_settings(stored)
        if getattr(stored, name) != getattr(effective, name)
    ]
    return [MessagePart("ctranslate2_changes_settings", changes=join_reasons(changes))] if changes else []


def check_onnx_defaults(generation: dict[str, Any]) -> None:
    """Raise a `ModelError` if ONNX Runtime does not support the model's default settings."""
    _check_defaults(GenerationConfig(**drop_machine_settings(generation)), check_onnx_options)


def _relevant_settings(config: GenerationConfig) -> list[str]:
    """Return the settings that have an effect in this search."""
    names = ["stop", "renormalise"] if config.beam > 1 else []
    return [*names, "at_limit", *(["repetition_of"] if config.repetition_penalty != 1 else [])]


def _check_defaults(config: GenerationConfig, check: Callable[[GenerateOptions, GenerationConfig], None]) -> None:
    try:
        check(*split_options(config, {}))
    except UsageError as error:
        raise ModelError("stored_settings_unsupported", error=error) from None
