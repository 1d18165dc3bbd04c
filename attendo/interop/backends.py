"""Backends for exported models, ONNX Runtime and CTranslate2, and their checks of decoding options.

it does.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine, SearchEngine
from attendo.errors import ModelError, UsageError
from attendo.interop.ctranslate2.engine import CTranslate2Engine
from attendo.interop.ctranslate2.folder import Exported
from attendo.interop.ctranslate2.options import check_options, own_meaning
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.session import OnnxNetwork, StepByStep
from attendo.text import EOS, Tokenizer
from attendo.text_model import ScoredTarget, Wishes
from attendo.text_model.backends import OWN, refusal
from attendo.text_model.options import divided
from attendo.text_model.scoring import scored

OF_THE_MACHINE = ("engine", "compile", "precision", "batch_tokens")  # settings for the computer of the model folder


def check_onnx(wishes: Wishes, config: GenerationConfig) -> None:
    """What ONNX Runtime cannot honour is a `UsageError`."""
    asked = {
        "alignments": (wishes.alignments, OWN),
        "coverage_penalty": (config.coverage_penalty > 0, ("cached", "fast")),
        "compile": (config.compile, ("fast",)),
        f"precision {config.precision}": (config.precision != "auto", OWN),
    }
    if refused := {name: engines for name, (given, engines) in asked.items() if given}:
        raise refusal("onnx", refused)


class OnnxRuntime:
    """ONNX Runtime steps, and our own search chooses: all that needs no look inside the network is as ever."""

    name = "onnx"
    device = torch.device("cpu")

    def __init__(self, network: OnnxNetwork) -> None:
        self._network = network

    @property
    def longest(self) -> int | None:
        config = self._network.config
        return config.max_length - 1 if config.positions == "learned" else None

    def defaults(self, config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
        return config

    def check(self, wishes: Wishes, config: GenerationConfig) -> None:
        check_onnx(wishes, config)

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        return OnnxEngine(self._network, config.positions(on_gpu=False))

    def watched(self, config: GenerationConfig) -> SearchEngine:
        return SearchEngine(self._network, config.positions(on_gpu=False))

    def reader(self, config: GenerationConfig) -> StepByStep:
        return StepByStep(self._network)

    def scored(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        return scored(pairs, StepByStep(self._network), self.device, tokenizer)

    def evaluating(self) -> AbstractContextManager[None]:
        return nullcontext()


class CTranslate2Runtime:
    """CTranslate2 searches, by its own meaning of a beam; what it cannot do is refused."""

    name = "ctranslate2"

    def __init__(self, exported: Exported) -> None:
        self._exported = exported

    @property
    def device(self) -> torch.device:
        return torch.device(self._exported.translator.device)

    @property
    def longest(self) -> int:
        return self._exported.longest - 1

    def defaults(self, config: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
        return config if "like" in given else own_meaning(config, given)

    def check(self, wishes: Wishes, config: GenerationConfig) -> None:
        check_options(wishes, config)

    def engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        return CTranslate2Engine(self._exported, config.positions(self.device.type == "cuda"))

    def watched(self, config: GenerationConfig) -> None:
        """It does all of a search by itself."""

    def reader(self, config: GenerationConfig) -> None:
        """It tells logits of what it has chosen alone."""

    def scored(self, pairs: Sequence[Example], tokenizer: Tokenizer) -> list[ScoredTarget]:
        source, target = self._exported.names
        for pair in pairs:
            if pair.length > self._exported.longest:
                raise UsageError(
                    "export_pair_too_long", source=len(pair.source), target=len(pair.target), limit=self.longest
                )
        told = self._exported.translator.score_batch(
            [[source[each] for each in pair.source] for pair in pairs],
            [[target[each] for each in pair.target] for pair in pairs],
            max_input_length=0,
            max_batch_size=GenerationConfig().positions(self.device.type == "cuda"),
            batch_type="tokens",
        )
        return [
            ScoredTarget(tuple(tokenizer.pieces([*pair.target, EOS])), tuple(each.log_probs))
            for pair, each in zip(pairs, told, strict=True)
        ]

    def evaluating(self) -> AbstractContextManager[None]:
        return nullcontext()


def portable(generation: dict[str, Any]) -> dict[str, Any]:
    """What such a folder answers by: all but what was meant for another computer."""
    return {name: value for name, value in generation.items() if name not in OF_THE_MACHINE}


def ctranslate2_notes(generation: dict[str, Any]) -> list[str]:
    """What else its search means by the settings; a `ModelError` where it could not answer unless told otherwise."""
    stored = GenerationConfig(**portable(generation))
    meant = own_meaning(stored, {})
    _check(meant, check_options)
    changed = [name for name in _named(stored) if getattr(stored, name) != getattr(meant, name)]
    if not changed:
        return []
    told = (f"{name} is {getattr(meant, name)}, not {getattr(stored, name)}" for name in changed)
    return [f"CTranslate2 does not search by all settings of the model: {', '.join(told)}"]


def require_onnx(generation: dict[str, Any]) -> None:
    """A `ModelError` where ONNX Runtime could not answer unless told otherwise; all else is as ever."""
    _check(GenerationConfig(**portable(generation)), check_onnx)


def _named(config: GenerationConfig) -> list[str]:
    """Settings that say something in this search."""
    names = ["stop", "renormalise"] if config.beam > 1 else []
    return [*names, "at_limit", *(["repetition_of"] if config.repetition_penalty != 1 else [])]


def _check(config: GenerationConfig, check: Callable[[Wishes, GenerationConfig], None]) -> None:
    try:
        check(*divided(config, {}))
    except UsageError as error:
        raise ModelError("stored_settings_unsupported", error=error) from None
