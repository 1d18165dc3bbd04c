"""Whether an exported model answers the same whatever is asked beside it, and its scores are those of what it says.

Whether it is the same model as the folder that it was made from is told by the certificate of the export.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from attendo.errors import UsageError
from attendo.recipes.compared import Compared, apart, compared
from attendo.recipes.verify import BATCHES
from attendo.text_model import Hypothesis, TextModel

TOLERANCE = 1e-3  # of log-probabilities, which these tell as sums of rounded numbers
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam 4": {"beam": 4, "n_best": 4},
    "samples": {"sample": True},
}


def verify_exported(model: TextModel, texts: Sequence[str]) -> Iterator[Compared]:
    """All comparisons, each told as soon as it is made; searches that the engine cannot do are left out."""
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UsageError("no_sentence_to_verify")
    for name, options in SEARCHES.items():
        try:
            together = _answers(model, texts, options, len(texts))
        except UsageError:
            continue
        for size in (size for size in BATCHES if size < len(texts)):
            found = _answers(model, texts, options, size)
            pairs, path = list(zip(found, together, strict=True)), f"{model.runtime.name}, batches of {size}"
            yield compared(path, name, pairs, TOLERANCE, model.target_tokenizer.decode)
    yield _scores(model, texts)


def _answers(
    model: TextModel, texts: Sequence[str], options: dict[str, Any], size: int
) -> list[tuple[Hypothesis, ...]]:
    groups = [texts[first : first + size] for first in range(0, len(texts), size)]
    return [result.hypotheses for group in groups for result in model.generate(group, **options)]


def _scores(model: TextModel, texts: Sequence[str]) -> Compared:
    """The log-probability told with an answer, beside that of reading it. What came to no end has none to be counted.

    A text need not be cut into pieces as the answer was put together; those that are not are left out.
    """
    tokenizer, answers = model.target_tokenizer, _answers(model, texts, SEARCHES["greedy"], len(texts))
    kept = [
        (text, answer)
        for text, (answer, *_) in zip(texts, answers, strict=True)
        if tokenizer.pieces(tokenizer.encode(answer.text)) == list(answer.pieces)
    ]
    read = model.score_tokens([text for text, _ in kept], [answer.text for _, answer in kept])
    largest = 0.0
    for one, (_, answer) in zip(read, kept, strict=True):
        of_tokens = one.log_probabilities[: len(answer.pieces) + answer.has_end]
        largest = max(largest, apart(sum(of_tokens), answer.log_probability))
    return Compared("the score of an answer", "greedy", len(kept), largest=largest, allowed=TOLERANCE)
