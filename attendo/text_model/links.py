"""Which character of a source a character of its translation goes back to, by where the network looked."""

from collections.abc import Sequence

from attendo.data.line_breaks import as_line
from attendo.text import Tokenizer
from attendo.text_model.results import Hypothesis

Links = list[tuple[int, int]]  # a character of the source, and one of its translation; both count from 0

_NEAR = 4  # tokens that decide how the next one is written


def links_of(answer: Hypothesis, text: str, source: Tokenizer, target: Tokenizer) -> Links | None:
    """Of an answer to this text by a model with these tokenizers; None where no alignment was asked for."""
    if answer.alignment is None:
        return None
    ids = source.encode(as_line(text))
    added = answer.alignment.weights.size(1) - 1 - len(ids)  # what the model puts before every source
    here, there = _last_characters(source, ids), _last_characters(target, answer.ids)
    return [(here[one - added], there[other]) for one, other in answer.alignment.links if one >= added]


def _last_characters(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Of each token, its place in the text: behind it there is a space only where the token is one."""
    places: list[int] = []
    length = 0
    for place, token in enumerate(ids):
        near = ids[max(0, place - _NEAR) : place]
        length += len(tokenizer.decode([*near, token])) - len(tokenizer.decode(near))
        places.append(max(0, length - 1))
    return places
