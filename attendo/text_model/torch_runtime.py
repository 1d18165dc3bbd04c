"""Networks that torch computes: those of model folders."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.decode.making_do import MakingDo
from attendo.decode.tapped import Tapped
from attendo.errors import UsageError
from attendo.model.heads import HeadScales, ScaledHeads
from attendo.model.transformer import Transformer
from attendo.nn.cpu_threads import tune_threads
from attendo.text import Tokenizer
from attendo.text_model.choices import engine_of, in_precision, networks_of, search_engine_of
from attendo.text_model.networks import Reader, evaluating, longest_source
from attendo.text_model.results import ScoredTarget
from attendo.text_model.scoring import continued, scored
from attendo.text_model.searching import SearchEngine
from attendo.text_model.wishes import Wishes


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
