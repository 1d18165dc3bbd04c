"""Measures the exposure bias of a model on a text."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from attendo.data.batch import Example
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import ModelError, UsageError
from attendo.explore.exposure.corruptions import (
    CORRUPTIONS,
    Corruption,
    Ids,
    corrupt,
    draw_distractors,
    draw_positions,
    draw_replacements,
)
from attendo.explore.exposure.measures import (
    MAX_DISTANCE,
    MAX_STEPS,
    DistractorGap,
    ExcessError,
    ExposureReport,
    FloatArray,
    Histories,
    Recovery,
    compute_accuracy,
    compute_excess,
    compute_gap,
    compute_precision,
)
from attendo.explore.exposure.parallel_text import ParallelText
from attendo.explore.exposure.passes import GoldPass, ModelPasses
from attendo.settings import Settings
from attendo.text import EOS
from attendo.text_model import TextModel, eval_mode
from attendo.text_model.text_model import warn_missing_tags

_PASSES, _ORACLE_PASSES = 7, 5  # over all sentences, for progress


class ExposureSettings(Settings):
    """Settings of a measurement."""

    seed: int = Field(0, ge=0, description="seed of all random choices")
    batch_tokens: int = Field(0, ge=0, description="positions per batch; 0 chooses a value")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field("auto", description="precision of the networks")


def measure_exposure(
    model: TextModel,
    text: ParallelText,
    oracle: TextModel | None = None,
    settings: ExposureSettings | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> ExposureReport:
    """Measure the exposure bias of an autoregressive model with a source.

    `oracle` is a better model, or an ensemble, with the same tokenizers. Without it, ExAccErr is not measured.
    `progress` is called with the finished share of the work.
    """
    check_model(model, oracle)
    warn_missing_tags(text.sources, model.stored_model, model.generation)
    return _Measurement(model, oracle, text, settings or ExposureSettings(), progress).run()


def check_model(model: TextModel, oracle: TextModel | None = None) -> None:
    """Raise a `UsageError` if exposure bias is not defined for the model, or if the oracle does not fit it."""
    for each in filter(None, (model, oracle)):
        each.require_autoregressive("exposure bias")
        if each.network.continues_text:  # an exported folder has no network: it raises
            raise UsageError("exposure_decoder_only")
    for side in ("source", "target"):
        if oracle is not None and getattr(oracle, f"{side}_tokenizer") != getattr(model, f"{side}_tokenizer"):
            raise UsageError("oracle_tokenizer_mismatch", side=side)


class _Measurement:
    """The forward passes of one measurement, in order."""

    def __init__(
        self,
        model: TextModel,
        oracle: TextModel | None,
        text: ParallelText,
        settings: ExposureSettings,
        progress: Callable[[float], None],
    ) -> None:
        self._model, self._oracle, self._text, self._seed = model, oracle, text, settings.seed
        self._config = model.generation.override(
            batch_tokens=settings.batch_tokens, precision=settings.precision, coverage_penalty=0.0
        )
        self._pairs = text.encode(model)
        given = len(self._config.target_prefix)
        self._targets: list[Ids] = [(*pair.target[given:], EOS) for pair in self._pairs]
        self._prefixes = [tuple(pair.target[:given]) for pair in self._pairs]
        if oracle is not None:
            text.encode(oracle)  # its learned positions may be fewer
        self._progress, self._done = progress, 0
        self._total = len(self._pairs) * (_PASSES + (_ORACLE_PASSES if oracle else 0))

    @cached_property
    def _passes(self) -> ModelPasses:
        """Made when dropout is off: another precision makes a copy of the network, with its mode."""
        return ModelPasses(self._model, self._config, self._advance)

    def run(self) -> ExposureReport:
        with ExitStack() as stack:
            stack.enter_context(self._model.backend.inference_mode())
            if self._oracle is not None:
                stack.enter_context(eval_mode(*self._oracle.networks))
            report = self._run_all()
        self._progress(1.0)
        return report

    def _run_all(self) -> ExposureReport:
        positions = draw_positions(self._targets, self._seed)
        gold = self._passes.read_references(self._pairs, positions)
        self._check_numbers(gold)
        outputs = self._passes.generate(self._pairs, Greedy())
        tokenizer = self._model.target_tokenizer
        texts = [tokenizer.decode([token for token in ids if token != EOS]) for ids in outputs]
        report = ExposureReport(
            sentences=len(self._pairs),
            tokens=sum(map(len, self._targets)),
            nll=-float(np.concatenate([each.log_probs for each in gold]).mean()),
            cut=sum(ids[-1:] != (EOS,) for ids in outputs),
            accuracy=compute_accuracy(self._targets, [each.predictions for each in gold], outputs),
            quarters=compute_precision(texts, self._text.references),
            recovery=self._measure_recovery(gold, positions),
            distractor=self._measure_distractors(gold),
        )
        return report if self._oracle is None else self._add_excess(report, self._oracle, outputs)

    def _measure_recovery(
        self, gold: Sequence[GoldPass], positions: Sequence[int | None]
    ) -> dict[Corruption, Recovery]:
        drawn = draw_replacements(self._targets, positions, self._seed)
        wrong = [None if position is None else each.best_wrong for each, position in zip(gold, positions, strict=True)]
        replacements = {"random": drawn, "wrong": wrong}
        found: dict[Corruption, Recovery] = {}
        for name in CORRUPTIONS:
            corrupted: list[_CorruptedLine] = []
            for line, position in enumerate(positions):
                replacement = replacements.get(name, wrong)[line]
                if position is not None and replacement is not None:
                    ids, shift = corrupt(self._targets[line], position, name, replacement)
                    corrupted.append(_CorruptedLine(line, position, shift, self._make_pair(line, ids)))
            scored = self._passes.score([each.pair for each in corrupted])
            self._advance(len(positions) - len(corrupted))
            differences = np.full((len(positions), MAX_DISTANCE), np.nan)
            for each, after in zip(corrupted, scored, strict=True):
                before = gold[each.line].log_probs[each.position + 1 :][:MAX_DISTANCE]
                later = after[each.position + 1 + each.shift :][:MAX_DISTANCE]
                differences[each.line, : len(before)] = before - later
            found[name] = Recovery(name, differences)
        return found

    def _measure_distractors(self, gold: Sequence[GoldPass]) -> DistractorGap:
        drawn = draw_distractors(self._targets, self._seed)
        lines = [line for line, other in enumerate(drawn) if other is not None]
        pairs = [self._make_pair(line, self._targets[drawn[line] or 0]) for line in lines]
        scored = dict(zip(lines, self._passes.score(pairs), strict=True))
        self._advance(len(drawn) - len(lines))
        return compute_gap([each.log_probs for each in gold], [scored.get(line) for line in range(len(drawn))])

    def _add_excess(self, report: ExposureReport, oracle: TextModel, greedy: Sequence[Ids]) -> ExposureReport:
        sampled = self._passes.generate(self._pairs, Sampling(1, self._seed), MAX_STEPS)
        gold = self._measure_divergences(oracle, self._targets)
        own: dict[Histories, Sequence[Ids]] = {"sampled": sampled, "greedy": greedy}
        excess: dict[Histories, ExcessError] = {
            name: compute_excess(name, self._measure_divergences(oracle, histories), gold)
            for name, histories in own.items()
        }
        scored = ModelPasses(oracle, self._config, self._advance).score(self._pairs)
        return replace(report, excess=excess, oracle_nll=-float(np.concatenate(scored).mean()))

    def _measure_divergences(self, oracle: TextModel, histories: Sequence[Ids]) -> list[FloatArray]:
        """Return KL(oracle ‖ model) after each proper prefix of the histories, for at most 20 tokens."""
        pairs = [self._make_pair(line, ids[:MAX_STEPS]) for line, ids in enumerate(histories)]
        return self._passes.measure_divergences(oracle, pairs)

    def _make_pair(self, line: int, ids: Ids) -> Example:
        """Return the source of a line with other target tokens. The last one is predicted but not read."""
        return Example(self._pairs[line].source, (*self._prefixes[line], *ids[:-1]))

    def _check_numbers(self, gold: Sequence[GoldPass]) -> None:
        for line, each in enumerate(gold):
            if np.isnan(each.log_probs).any():
                place = self._text.name_line(line, reference=True)
                raise ModelError("text_log_probability_nan", text=place, precision=self._config.precision)

    def _advance(self, sentences: int) -> None:
        self._done += sentences
        self._progress(min(self._done / self._total, 1.0))


@dataclass(frozen=True)
class _CorruptedLine:
    line: int
    position: int
    shift: int
    pair: Example
