"""Checks outputs for faults: the detectors of `metrics/faults.py`, applied to hypotheses."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attendo.metrics.fault_limits import FaultLimits, OutputScore
from attendo.metrics.faults import KINDS, CheckedOutput, Fault, find_faults
from attendo.text_model.results import CheckReport, Hypothesis, Result, ScoredTarget


@dataclass(frozen=True)
class OutputChecker:
    """Finds the faults of outputs."""

    limits: FaultLimits

    def check(self, source: str, hypothesis: Hypothesis, contrast: float | None = None) -> CheckReport:
        """Return the faults of a hypothesis. `contrast` is that of `compute_contrast`."""
        score = score_hypothesis(hypothesis, contrast)
        return self._report(CheckedOutput(source, hypothesis.text, score, hypothesis.cut))

    def check_given(
        self,
        source: str,
        output: str,
        scored: ScoredTarget | None,
        without_source: ScoredTarget | None,
        truncated: bool = False,
    ) -> CheckReport:
        """Return the faults of a given output. `without_source` is its score without the source."""
        score = None
        if scored is not None and (tokens := len(scored.pieces) - truncated):  # a truncated output has no eos
            contrast = None if without_source is None else compute_contrast(scored, without_source, tokens)
            score = OutputScore(tokens, sum(scored.log_probabilities[:tokens]) / tokens, contrast)
        return self._report(CheckedOutput(source, output, score, truncated))

    def _report(self, output: CheckedOutput) -> CheckReport:
        confidence = None if output.score is None else self.limits.confidence(output.score)
        return CheckReport(find_faults(output, self.limits), confidence)


def compute_contrast(scored: ScoredTarget, without_source: ScoredTarget, tokens: int) -> float | None:
    """Return the mean over the first tokens of log p(token | source) - log p(token | no source)."""
    pairs = zip(scored.log_probabilities[:tokens], without_source.log_probabilities, strict=False)
    return sum(one - other for one, other in pairs) / tokens if tokens else None


def score_hypothesis(hypothesis: Hypothesis, contrast: float | None = None) -> OutputScore | None:
    """Return the mean log-probability per token, or None without tokens."""
    tokens = len(hypothesis.ids) + hypothesis.has_end
    return OutputScore(tokens, hypothesis.parts.log_probability / tokens, contrast) if tokens else None


def join_reports(result: Result) -> CheckReport:
    """Return the report of a result. If it is joined, it has the reports of its sentences, with the worst first."""
    if not result.sentences:
        return result.report or CheckReport()
    reports = [each.report for each in result.sentences if each.report]
    known = [each.confidence for each in reports if each.confidence is not None]
    return CheckReport(
        tuple(sorted(_shift_faults(result), key=lambda fault: KINDS.index(fault.kind))),
        min(known) if known else None,
        tuple(repair for each in reports for repair in each.repairs),
    )


def _shift_faults(result: Result) -> Iterator[Fault]:
    """Yield the faults of the sentences, with their places in the joined text."""
    begin = 0
    for each in result.sentences:
        begin = max(result.text.find(each.text, begin), begin)
        for fault in each.faults:
            yield replace(fault, where=(begin + fault.where[0], begin + fault.where[1]))
        begin += len(each.text)
