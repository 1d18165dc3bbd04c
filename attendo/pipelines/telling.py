"""What of a text was not read, and what of an answer is not as it should be: told with the answer, and as a warning."""

import warnings
from collections.abc import Sequence
from typing import Any

from attendo.text_model import Hypothesis, Result
from attendo.text_model.faults import shown

_NAMED = 20  # unknown parts that a warning names


class NotWholeWarning(UserWarning):
    """A text was not read whole, or its answer is not whole; the dicts of a pipeline say which."""


def shortcomings(result: Result, answer: Hypothesis, ends: bool) -> dict[str, Any]:
    """By the names of `attendo generate --json`; what there is none of is left out. `ends`: answers have an end."""
    told = {
        "unknown": list(result.unknown),
        "source_left_out": result.source_left_out,
        "unsplit": result.unsplit,
        "cut": answer.cut and ends,
        "constraints": [] if all(answer.constraints) else list(answer.constraints),
    }
    return {name: value for name, value in told.items() if value}


def warn(results: Sequence[Result], ends: bool, limited: bool) -> None:
    """Once for all texts of a call. `limited`: the call itself says how long answers are."""
    best = [shortcomings(result, result.best, ends) for result in results]
    unknown = list(dict.fromkeys(part for each in best for part in each.get("unknown", ())))
    more = f" and {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else ""
    left_out = sum(each.get("source_left_out", 0) for each in best)
    meanings = {
        "unknown": f"not in the vocabulary: {', '.join(map(shown, unknown[:_NAMED]))}{more}",
        "source_left_out": f"the last tokens were not read, {left_out:,} in all: shorten the text, or take split=True",
        "unsplit": "read as one sentence, and the model learned from single ones: leave out constraints or prefix",
        "cut": "the answer was cut at its length limit: see max_length",
        "constraints": "not all constraints are met",
    }
    for name, meaning in meanings.items():
        count = sum(name in each for each in best)
        if count and not (name == "cut" and limited):
            where = f"{count} of {len(best)} texts" if len(best) > 1 else "the text"
            warnings.warn(f"{where}: {meaning} ({name} in the result)", NotWholeWarning, stacklevel=3)
