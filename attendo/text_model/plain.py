"""Results as plain values, for JSON: the same on the command line and over HTTP."""

from dataclasses import asdict
from typing import Any

from attendo.text_model.results import Hypothesis, Result

_DIGITS = 4  # of a weight of attention


def plain_result(result: Result, several: bool) -> dict[str, Any]:
    """The best hypothesis; `several`: with all of them. What there is none of is left out."""
    content = plain_hypothesis(result.best)
    if result.unknown:
        content["unknown"] = result.unknown
    if result.source_left_out:
        content["source_left_out"] = result.source_left_out
    if result.unsplit:
        content["unsplit"] = result.unsplit
    if result.sentences:
        content["sentences"] = [plain_hypothesis(each.best) for each in result.sentences]
    if several:
        content["hypotheses"] = [plain_hypothesis(each) for each in result.hypotheses]
    return content


def plain_hypothesis(each: Hypothesis) -> dict[str, Any]:
    content: dict[str, Any] = {
        "text": each.text,
        "score": each.score,
        "parts": asdict(each.parts),
        "pieces": each.pieces,
        "ids": each.ids,
        "cut": each.cut,
    }
    if each.constraints:
        content["constraints"] = each.constraints
    if each.utility is not None:
        content["utility"] = each.utility
    if each.alignment is not None:
        content["alignments"] = each.alignment.links
        content["word_alignments"] = each.alignment.word_links
        content["source_pieces"] = each.alignment.source_pieces
        content["attention"] = [[round(weight, _DIGITS) for weight in row] for row in each.alignment.weights.tolist()]
    return content
