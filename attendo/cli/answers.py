"""Results as lines of text: plain, Marian's n-best lists, JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from attendo.cli.lines import one_line

if TYPE_CHECKING:
    from attendo.text_model import Hypothesis, Result


def plain(result: "Result") -> str:
    """The text; behind ||| the alignment, where there is one."""
    alignment = "" if result.alignment is None else f" ||| {result.alignment}"
    return one_line(result.text) + alignment


def n_best(number: int, result: "Result") -> Iterator[str]:
    """`LINE ||| text ||| F0= log-probability ||| score`, lines counted from 0; an alignment behind the text."""
    for each in result.hypotheses:
        alignment = "" if each.alignment is None else f"{each.alignment} ||| "
        yield f"{number} ||| {one_line(each.text)} ||| {alignment}F0= {each.log_probability:.6f} ||| {each.score:.6f}"


def as_json(number: int, result: "Result", several: bool) -> str:
    """One object; `line` is counted from 1. `several`: with all hypotheses."""
    content: dict[str, Any] = {"line": number + 1, **_content(result.best)}
    if result.unknown:
        content["unknown"] = result.unknown
    if result.sentences:
        content["sentences"] = [_content(each.best) for each in result.sentences]
    if several:
        content["hypotheses"] = [_content(each) for each in result.hypotheses]
    return json.dumps(content, ensure_ascii=False)


def warnings(number: int, result: "Result") -> Iterator[str]:
    """What was not done as asked, with the line of the input, counted from 1."""
    if result.unknown:
        yield f"line {number + 1}: not in the vocabulary: {', '.join(map(repr, result.unknown))}"
    if result.cut:
        yield f"line {number + 1}: cut at {len(result.ids)} tokens; see --max-length"
    if not all(result.constraints):
        yield f"line {number + 1}: {result.constraints.count(False)} of {len(result.constraints)} constraints not met"


def _content(each: "Hypothesis") -> dict[str, Any]:
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
        content["attention"] = [[round(weight, 4) for weight in row] for row in each.alignment.weights.tolist()]
    return content
