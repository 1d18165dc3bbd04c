"""Scores as lines, tables and JSON."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attendo.metrics import Comparison, Score

Facts = dict[str, Any]
By = dict[str, tuple[int, "list[Score]"]]  # of each label, how many lines it has and their scores


def tell(scores: "Sequence[Score]", by: By, facts: Facts | None) -> None:
    """As one JSON object where there are facts to go with the scores."""
    if facts is not None:
        labelled = {
            label: {"lines": lines, "scores": {each.name: each.value for each in found}}
            for label, (lines, found) in by.items()
        }
        scored = {each.name: _as_json(each) for each in scores}
        print(json.dumps({**facts, "scores": scored, **({"by": labelled} if by else {})}, ensure_ascii=False))
        return
    for each in scores:
        print(f"{each.name} {each.value:.2f} {each.signature}")
    if by:
        rows = [(label or "(none)", str(lines), *_values(found)) for label, (lines, found) in by.items()]
        _print_table([("label", "lines", *(each.name for each in scores)), *rows])


def tell_compared(comparisons: "Sequence[Comparison]", names: tuple[object, object], facts: Facts | None) -> None:
    if facts is not None:
        scores = {each.one.name: _as_json(each.one) for each in comparisons}
        compared = {each.one.name: _compared_as_json(each) for each in comparisons}
        print(json.dumps({**facts, "scores": scores, "other": str(names[1]), "comparisons": compared}))
        return
    _print_table([("score", "model", "other", "difference", "95% interval", "p"), *map(_row, comparisons)])
    for each in comparisons:
        print(f"{each.one.name}: {_in_words(each, *names)}")
    for each in comparisons:
        print(f"{each.one.name} {each.signature}")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))


def _values(scores: "Sequence[Score]") -> list[str]:
    return [f"{each.value:.2f}" for each in scores]


def _row(each: "Comparison") -> tuple[str, ...]:
    low, high = each.interval
    values = (f"{each.one.value:.2f}", f"{each.other.value:.2f}", f"{each.difference:+.2f}")
    return (each.one.name, *values, f"{low:+.2f} to {high:+.2f}", f"{each.p_value:.3f}")


def _in_words(each: "Comparison", model: object, other: object) -> str:
    if each.significant:
        better, worse = (model, other) if each.one_is_better else (other, model)
        return f"{better} is better than {worse}, significant at 0.05"
    if each.p_value < 0.05:
        return "not significant at 0.05: p is below it, but the interval holds 0"
    return "not significant at 0.05"


def _as_json(score: "Score") -> dict[str, str | float | bool]:
    return {"value": score.value, "signature": score.signature, "higher_is_better": score.higher_is_better}


def _compared_as_json(each: "Comparison") -> dict[str, Any]:
    return {
        "other": each.other.value,
        "difference": each.difference,
        "interval": list(each.interval),
        "p_value": each.p_value,
        "significant": each.significant,
        "signature": each.signature,
    }
