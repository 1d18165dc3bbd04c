"""Characters and words of a given text that each of its tokens covers, unknown tokens included."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from attendo.errors import DataError, MessagePart
from attendo.text import UNK, Tokenizer
from attendo.text.tokenizer import UNKNOWN_TEXT

_CONTEXT_TOKENS = 4  # preceding tokens that affect the text of the next one


def map_tokens_to_words(
    tokenizer: Tokenizer, text: str, words: Sequence[str], location: MessagePart | str
) -> list[int]:
    """Return for each token the index of the word that contains its last character."""
    ends = _count_letters(tokenizer, text, tokenizer.encode(text))
    starts = list(accumulate((_count_non_space(word) for word in words), initial=0))
    if ends and ends[-1] != starts[-1]:
        raise DataError(
            "token_word_length_mismatch", place=location, token_characters=ends[-1], word_characters=starts[-1]
        )
    return [max(0, bisect_right(starts, max(0, end - 1)) - 1) for end in ends]


def token_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the first character of each token of a text and the one after its last, without white space around it.

    None if the tokens do not have the letters of the text, such as those of a cut source.
    """
    ends = _count_letters(tokenizer, text, ids)
    letters = [position for position, letter in enumerate(text) if not letter.isspace()]
    if not ends or ends[-1] != len(letters):
        return None
    begins = [0, *ends[:-1]]
    return [
        (letters[begin], letters[end - 1] + 1) if end > begin else (0, 0)
        for begin, end in zip(begins, ends, strict=True)
    ]


def _count_letters(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[int]:
    """Return the number of characters up to each token, without white space. UNK counts as the text it replaces."""
    unknown = iter(tokenizer.unknown(text) if UNK in ids else ())
    ends, total = [], 0
    for number, token in enumerate(ids):
        if token == UNK:
            total += _count_non_space(next(unknown, UNKNOWN_TEXT))
        else:
            near = ids[max(0, number - _CONTEXT_TOKENS) : number]
            both, before = tokenizer.decode([*near, token]), tokenizer.decode(near)
            total += _count_non_space(both) - _count_non_space(before)
        ends.append(total)
    return ends


def _count_non_space(text: str) -> int:
    """Count the characters without white space."""
    return sum(not letter.isspace() for letter in text)
