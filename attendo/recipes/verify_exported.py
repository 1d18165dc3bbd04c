"""Whether an exported model answers the same whatever is asked beside it, and its scores are those of what it says.

Whether it is the same model as the folder that it was made from is told by the certificate of the export.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from attendo.errors import UsageError
from attendo.recipes.verify import BATCHES, Compared
from attendo.text_model import Hypothesis, TextModel

TOLERANCE = 1e-3  # of log-probabilities, which these tell as sums of rounded numbers
SEARCHES: dict[str, dict[str, Any]] = {"greedy": {"beam": 1}, "beam 4": {"beam": 4}, "samples": {"sample": True}}


def verify_exported(model: TextModel, texts: Sequence[str]) -> Iterator[Compared]:
    """All comparisons, each told as soon as it is made; searches that the engine cannot do are left out."""
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UsageError("there is no sentence to verify with: name a file with some")
    for name, options in SEARCHES.items():
        try:
            together = _answers(model, texts, options, len(texts))
        except UsageError:
            continue
        for size in (size for size in BATCHES if size < len(texts)):
            found = _answers(model, texts, options, size)
            yield _compared(f"{model.runtime.name}, batches of {size}", name, found, together)
    yield _scores(model, texts)


def _answers(model: TextModel, texts: Sequence[str], options: dict[str, Any], size: int) -> list[Hypothesis]:
    groups = [texts[first : first + size] for first in range(0, len(texts), size)]
    return [result.best for group in groups for result in model.generate(group, **options)]


def _compared(path: str, what: str, found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> Compared:
    pairs = list(zip(found, expected, strict=True))
    differing = [(one, other) for one, other in pairs if one.ids != other.ids]
    return Compared(
        path=path,
        what=what,
        count=len(pairs),
        different=len(differing),
        ties=sum(abs(one.score - other.score) <= TOLERANCE for one, other in differing),
        largest=max((_apart(*pair) for pair in pairs if pair not in differing), default=0.0),
        allowed=TOLERANCE,
        example=f"{differing[0][0].text!r} and {differing[0][1].text!r}" if differing else "",
    )


def _scores(model: TextModel, texts: Sequence[str]) -> Compared:
    """The log-probability told with an answer, beside that of reading it.

    A text need not be cut as the answer was put together; those that are not are left out, as are those without an end.
    """
    answers = [
        (text, answer)
        for text, answer in zip(texts, _answers(model, texts, SEARCHES["greedy"], len(texts)), strict=True)
        if not answer.cut
        and model.target_tokenizer.pieces(model.target_tokenizer.encode(answer.text)) == list(answer.pieces)
    ]
    read = model.score([text for text, _ in answers], [answer.text for _, answer in answers])
    apart = [abs(one - answer.log_probability) for one, (_, answer) in zip(read, answers, strict=True)]
    largest = max(apart, default=0.0)
    return Compared("the score of an answer", "greedy", len(answers), largest=largest, allowed=TOLERANCE)


def _apart(one: Hypothesis, other: Hypothesis) -> float:
    return abs(one.log_probability - other.log_probability)
