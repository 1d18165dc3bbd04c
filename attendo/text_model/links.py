"""Which character of a source a character of its translation goes back to, by where the network looked."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from attendo.data.line_breaks import as_line
from attendo.text import Tokenizer
from attendo.text_model.results import Hypothesis

Tokenizers = tuple[Tokenizer, Tokenizer]  # of the source and of the target
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


def with_words(answer: Hypothesis, source: Sequence[int], before: int, tokenizers: Tokenizers) -> Hypothesis:
    """The same, its alignment with the tokens of the source and the words that tokens belong to.

    The first `before` tokens of the source are no part of its text.
    """
    if answer.alignment is None:
        return answer
    source_tokenizer, target_tokenizer = tokenizers
    alignment = replace(
        answer.alignment,
        source_pieces=tuple(source_tokenizer.pieces(source)),
        source_words=(-1,) * before + word_numbers(source_tokenizer, source[before:]),
        target_words=word_numbers(target_tokenizer, answer.ids),
    )
    return replace(answer, alignment=alignment)


def word_numbers(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """Of each token the word that its last character belongs to, counted from 0; words are what white space divides."""
    text = tokenizer.decode(ids)
    begins = [n for n, each in enumerate(text) if not each.isspace() and (n == 0 or text[n - 1].isspace())]
    return tuple(bisect_right(begins, place) - 1 for place in _last_characters(tokenizer, ids))


def _last_characters(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Of each token, its place in the text: behind it there is a space only where the token is one."""
    places: list[int] = []
    length = 0
    for place, token in enumerate(ids):
        near = ids[max(0, place - _NEAR) : place]
        length += len(tokenizer.decode([*near, token])) - len(tokenizer.decode(near))
        places.append(max(0, length - 1))
    return places
