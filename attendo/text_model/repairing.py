"""Repairs of outputs with faults: further searches, of which the best output is kept.

The order is that of the evidence for translation (Guerreiro et al. 2023, Dale et al. 2023): rules against repetition
and wrong lengths first, then other hypotheses ranked by the source's contribution, then shorter sources.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from attendo.decode.config import GenerationConfig
from attendo.decode.mbr import rank_by_utility
from attendo.errors import UsageError
from attendo.metrics.fault_limits import FaultLimits, split_words
from attendo.metrics.pairwise import pairwise_chrf
from attendo.text_model.checking import score_hypothesis
from attendo.text_model.constraints import Ids
from attendo.text_model.generation import PreparedCall
from attendo.text_model.inputs import SourceEncoder, SourceLine
from attendo.text_model.options import GenerateOptions
from attendo.text_model.results import CheckReport, Hypothesis, Repair, Result

_BEAM = 4
_LOOP_NGRAM = 3  # no repeated trigrams in new outputs for one with a loop
_SAMPLES = 10
_FAULT_PENALTY = 4.0  # standard deviations of contrast plus log-probability
_AGREEMENT_WEIGHT = 0.5  # of the expected utility among the candidates, in standard deviations
_MIN_SPLIT_WORDS = 15  # of a source
_MIN_PART_WORDS = 3
_CLAUSE_END = re.compile(r"(?<=[,;:.!?])\s+|(?<=[，；：、。！？])\s*")
_RULE_FAULTS = {"loop", "copy", "empty", "truncated"}  # that rules can prevent
# The text shows these, however probable it is. Any other fault may be a right output of an unusual source.
_CERTAIN_FAULTS = {*_RULE_FAULTS, "wrong_language", "untranslated_segment"}
_PLAIN: dict[str, Any] = {"beam_groups": 1, "mbr": "none"}
_RULES: dict[str, Any] = {
    **_PLAIN,
    "sample": False,
    "normalise": "average",
    "length_penalty": 1.0,
    "at_limit": "force_eos",
}
_SAMPLING: dict[str, Any] = {
    **_PLAIN,
    "sample": True,
    "beam": 1,
    "temperature": 0.7,
    "at_limit": "force_eos",
}

Search = Callable[[Sequence[SourceLine], GenerateOptions, GenerationConfig], list[tuple[Hypothesis, ...]]]
Contrasts = Callable[[Sequence[tuple[Ids, Hypothesis]]], list[float | None]]


@dataclass(frozen=True)
class Repairer:
    """Searches again for lines whose outputs have faults. Outputs without faults stay as they are."""

    call: PreparedCall
    search: Search
    contrasts: Contrasts
    part_encoder: SourceEncoder  # of the parts of a source, each as one line

    def repair(self, results: Sequence[Result]) -> list[Result]:
        """Return one result per line. An output is replaced only by one with fewer faults."""
        found = [
            each if each.report else replace(each, report=self._check(line, each.best))
            for line, each in zip(self.call.lines, results, strict=True)
        ]
        for by, propose in (("rules", self._use_rules), ("candidates", self._sample), ("split", self._split)):
            kinds = {number: each.report.serious for number, each in enumerate(found) if each.report}
            if by == "rules":  # a minimum length forces other outputs to go on with any words
                kinds = {number: faults for number, faults in kinds.items() if _RULE_FAULTS.intersection(faults)}
            loops = [number for number, faults in kinds.items() if "loop" in faults]
            others = [number for number, faults in kinds.items() if faults and "loop" not in faults]
            for numbers, ngram in ((loops, _LOOP_NGRAM), (others, 0)):
                config = self.call.config.override(no_repeat_ngram_size=ngram or None)
                proposed = _skip_unsupported(propose, [self.call.lines[number] for number in numbers], config)
                for number, hypotheses in zip(numbers, proposed, strict=True):
                    if hypotheses:
                        found[number] = self._choose(by, self.call.lines[number], found[number], hypotheses)
        return found

    def _use_rules(self, lines: Sequence[SourceLine], config: GenerationConfig) -> list[tuple[Hypothesis, ...]]:
        """Search with a beam for outputs of a usual length."""
        limits, beam = self._limits, max(_BEAM, config.beam)
        changed = []
        for line in lines:
            least = max(line.min_length, int(limits.min_length_factor * line.source_tokens))
            most = max(ceil(limits.max_length_factor * line.source_tokens) + 1, len(line.prefix) + 1, least)
            most = min(line.max_length, most)
            changed.append(replace(line, min_length=min(least, most), max_length=most))
        options = replace(self.call.options, n_best=beam, distinct=True)
        return self.search(changed, options, config.override(**_RULES, beam=beam))

    def _sample(self, lines: Sequence[SourceLine], config: GenerationConfig) -> list[tuple[Hypothesis, ...]]:
        options = replace(self.call.options, n_best=_SAMPLES, distinct=True)
        return self.search(lines, options, config.override(**_SAMPLING))

    def _split(self, lines: Sequence[SourceLine], config: GenerationConfig) -> list[tuple[Hypothesis, ...]]:
        """Generate for the clauses of long sources, each on its own, and join the outputs."""
        parts = [[] if line.prefix or line.phrases else split_clauses(line.text) for line in lines]
        encoded = [[made[0] for made in self.part_encoder.encode(each) if made] if each else [] for each in parts]
        config = config.override(**_RULES, beam=max(_BEAM, config.beam))
        options = replace(self.call.options, n_best=1, constraints=(), prefix="")
        answers = iter(self.search([line for each in encoded for line in each], options, config))
        joined: list[tuple[Hypothesis, ...]] = []
        for each in encoded:
            best = [next(answers)[0] for _ in each]
            joined.append((self.part_encoder.join_hypotheses(best, each),) if best else ())
        return joined

    def _choose(self, by: str, line: SourceLine, result: Result, hypotheses: Sequence[Hypothesis]) -> Result:
        """Return the result with the best new output that has fewer faults and a higher value than the old one.

        A fault that is not certain is a right output of an unusual source if no other output has more evidence.
        """
        assert result.report is not None
        candidates, before = [result.best, *hypotheses], result.report.serious
        contrasts = self._compute_contrasts(line, candidates)
        checked = self.call.options.check_detached
        reports = [
            self._check(line, each, contrast if checked else None)
            for each, contrast in zip(candidates, contrasts, strict=True)
        ]
        agreement = rank_by_utility([each.text for each in candidates], pairwise_chrf).expected
        evidence = [self._measure_evidence(*each) for each in zip(candidates, contrasts, strict=True)]
        values = [one - _FAULT_PENALTY * len(report.serious) for one, report in zip(evidence, reports, strict=True)]
        # The parts of a split source are searched with less context, so their evidence is lower.
        needs_evidence = by != "split" and not _CERTAIN_FAULTS.intersection(before)
        acceptable = [
            number
            for number in range(1, len(candidates))
            if len(reports[number].serious) < len(before)
            and values[number] > values[0]
            and not (needs_evidence and evidence[number] < evidence[0])
        ]
        kept, ranks = bool(acceptable), _AGREEMENT_WEIGHT * standardise(agreement)
        best = max(acceptable or range(1, len(candidates)), key=lambda number: values[number] + ranks[number])
        repairs = (*result.report.repairs, Repair(by, before, reports[best].serious, kept))
        if not kept:
            return replace(result, report=replace(result.report, repairs=repairs))
        others = [each for each in result.hypotheses if each.text != candidates[best].text]
        n_best = (candidates[best], *others)[: self.call.options.n_best]
        return replace(result, hypotheses=n_best, report=replace(reports[best], repairs=repairs))

    def _measure_evidence(self, hypothesis: Hypothesis, contrast: float | None) -> float:
        """Return the z-score of the log-probability plus that of what the source adds to it."""
        score = score_hypothesis(hypothesis, contrast)
        return self._limits.standardise(score) if score else 0.0

    def _compute_contrasts(self, line: SourceLine, hypotheses: Sequence[Hypothesis]) -> list[float | None]:
        try:
            return self.contrasts([(line.source, each) for each in hypotheses])
        except UsageError:  # the kind of the network has no likelihood
            return [None] * len(hypotheses)

    def _check(self, line: SourceLine, hypothesis: Hypothesis, contrast: float | None = None) -> CheckReport:
        assert self.call.checker is not None
        return self.call.checker.check(line.text, hypothesis, contrast)

    @property
    def _limits(self) -> FaultLimits:
        assert self.call.checker is not None
        return self.call.checker.limits


def standardise(values: Sequence[float]) -> np.ndarray:
    """Return the values as standard deviations from their mean, 0 if all are the same."""
    found = np.asarray(values, dtype=float)
    return (found - found.mean()) / max(float(found.std()), 1e-9)


def split_clauses(text: str) -> list[str]:
    """Split a long text at punctuation into parts of at least three words. Return [] if there is only one."""
    if len(split_words(text)) <= _MIN_SPLIT_WORDS:
        return []
    parts = [""]
    for clause in _CLAUSE_END.split(text):
        if len(split_words(parts[-1])) >= _MIN_PART_WORDS:
            parts.append("")
        parts[-1] = f"{parts[-1]} {clause}".strip()
    if len(parts) > 1 and len(split_words(parts[-1])) < _MIN_PART_WORDS:
        parts[-2:] = [f"{parts[-2]} {parts[-1]}"]
    return parts if len(parts) > 1 else []


def _skip_unsupported(
    propose: Callable[[Sequence[SourceLine], GenerationConfig], list[tuple[Hypothesis, ...]]],
    lines: Sequence[SourceLine],
    config: GenerationConfig,
) -> list[tuple[Hypothesis, ...]]:
    """Return proposals, or none if the network or the engine cannot search in this way."""
    try:
        return propose(lines, config) if lines else []
    except UsageError:
        return [()] * len(lines)
