"""Output of a model that predicts all tokens at once, as the page shows it."""

from collections.abc import Sequence
from itertools import groupby
from math import log
from typing import Any

from attendo.text_model import ParallelTrace
from attendo.text_model.parallel_trace import (
    CtcPosition,
    CtcTrace,
    GraphTrace,
    GraphVertex,
    MaskedToken,
    MaskPredictTrace,
)


def describe_parallel_answer(trace: ParallelTrace) -> dict[str, Any]:
    """Return the data of the last event of /answer: one hypothesis."""
    pieces, each = list(trace.target_pieces), zip(trace.target_pieces, trace.target_ids, strict=True)
    hypothesis = {
        "text": trace.text,
        "pieces": pieces,
        "tokens": [
            {"piece": piece, "id": token, "log_probability": log_probability}
            for (piece, token), log_probability in zip(each, _token_log_probabilities(trace), strict=False)
        ],
        "log_probability": trace.log_probability,
        "score": trace.log_probability / max(1, len(pieces)),
        "parts": {
            "length_term": max(1, len(pieces)),
            "reward": 0,
            "penalties": 0,
            "coverage": 0,
            "tokens": len(pieces),
        },
        "cut": trace.cut,
    }
    source = {"pieces": list(trace.source_pieces)}
    return {"source": source, "unknown": list(trace.unknown), "hypotheses": [hypothesis], "alternatives": []}


def _token_log_probabilities(trace: ParallelTrace) -> list[float]:
    """Return the log-probability of each token of the output at its first position, or its confidence."""
    found: Sequence[MaskedToken | GraphVertex | CtcPosition]
    match trace.details:
        case MaskPredictTrace(passes=passes):
            found = passes[-1]
        case GraphTrace(vertices=vertices):
            found = [each for each in vertices[1:-1] if each.chosen]
        case CtcTrace(positions=positions):
            found = [each for each in positions if each.chosen]
    if trace.options.get("merge_repeats"):
        found = [next(run) for _, run in groupby(found, key=lambda each: each.id)]
    return [log(max(each.probability, 1e-38)) for each in found]
