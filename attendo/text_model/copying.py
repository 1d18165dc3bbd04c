"""Unknown words copied from the source, and the case of source words given to the output, both placed by alignment.

replace_unknown    an unknown token of the output becomes the source token that it attends to most (Jean et al. 2015)
transfer_case      an output word takes the capitals of the source words that it is aligned with; the first word of the
                   output begins with a capital if that of the source does
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from attendo.text import EOS, UNK, Tokenizer
from attendo.text.tokenizer import UNKNOWN_TEXT
from attendo.text_model.alignment import word_indices
from attendo.text_model.options import GenerateOptions
from attendo.text_model.results import Hypothesis, Result
from attendo.text_model.token_words import token_spans

_WORD = re.compile(r"\S+")


def lower_unknown(text: str, tokenizer: Tokenizer) -> str:
    """Return the text with words in lower case that the vocabulary has only so. All characters keep their places."""

    def lower(found: re.Match[str]) -> str:
        word = found[0]
        lowered = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in word)
        if lowered == word:
            return word
        return lowered if len(tokenizer.unknown(lowered)) < len(tokenizer.unknown(word)) else word

    return _WORD.sub(lower, text)


@dataclass(frozen=True)
class SourceText:
    """A source as text and ids. `read` is what the network read: the text with other case."""

    text: str
    read: str
    ids: Sequence[int]
    num_prefix_tokens: int = 0  # at the start of `ids`, not part of the text


class WordCopier:
    """Copies words and case from sources to outputs whose alignment is known."""

    def __init__(self, options: GenerateOptions, source: Tokenizer, target: Tokenizer) -> None:
        self._options, self._source, self._target = options, source, target

    def apply(self, result: Result, source: SourceText) -> Result:
        """Return the result with other texts. Ids and pieces stay those of the network."""
        end = source.ids.index(EOS) if EOS in source.ids else len(source.ids)
        spans = token_spans(self._source, source.read, source.ids[source.num_prefix_tokens : end])
        if spans is None:  # a source that was cut
            return result
        return replace(result, hypotheses=tuple(self._change(each, source, spans) for each in result.hypotheses))

    def _change(self, hypothesis: Hypothesis, source: SourceText, spans: Sequence[tuple[int, int]]) -> Hypothesis:
        text = hypothesis.text
        if self._options.transfer_case:
            text = self._transfer_case(hypothesis, source, spans)
        if self._options.replace_unknown:
            text = _insert_copies(text, self._find_copies(hypothesis, source, spans))
        return replace(hypothesis, text=text)

    def _find_copies(self, hypothesis: Hypothesis, source: SourceText, spans: Sequence[tuple[int, int]]) -> list[str]:
        """Return the source text for each unknown token of the output."""
        assert hypothesis.alignment is not None
        begin = source.num_prefix_tokens
        weights = hypothesis.alignment.weights[:, begin : begin + len(spans)]
        best = weights.argmax(dim=1).tolist() if spans and len(weights) else []
        chosen = [spans[source] for source, token in zip(best, hypothesis.ids, strict=False) if token == UNK]
        return [source.text[first:last] for first, last in chosen]

    def _transfer_case(self, hypothesis: Hypothesis, source: SourceText, spans: Sequence[tuple[int, int]]) -> str:
        assert hypothesis.alignment is not None
        words = list(_WORD.finditer(source.text))
        begins = [word.start() for word in words]
        word_of_token = word_indices(self._target, hypothesis.ids)
        linked: dict[int, set[int]] = {}
        for token, position in hypothesis.alignment.links:
            if 0 <= token - source.num_prefix_tokens < len(spans):
                first, _ = spans[token - source.num_prefix_tokens]
                linked.setdefault(word_of_token[position], set()).add(bisect_right(begins, first) - 1)
        numbers = iter(range(len(hypothesis.text)))

        def change(found: re.Match[str]) -> str:
            number = next(numbers)
            cases = {_find_case(words[each][0], is_first=each == 0) for each in linked.get(number, ())}
            word = _apply_case(found[0], cases.pop()) if len(cases) == 1 else found[0]
            starts = number == 0 and bool(words) and _begins_with_capital(words[0][0])
            return _capitalise(word) if starts else word

        return _WORD.sub(change, hypothesis.text)


def _insert_copies(text: str, copies: Sequence[str]) -> str:
    """Replace the marks of unknown tokens in order, if there is one for each."""
    parts = text.split(UNKNOWN_TEXT)
    if len(parts) != len(copies) + 1:
        return text
    return "".join(part + copy for part, copy in zip(parts, (*copies, ""), strict=True))


def _find_case(word: str, is_first: bool) -> Literal["", "upper", "capital"]:
    """Return the case that a source word hands on. A capital at the start of the text says nothing about the word."""
    letters = [letter for letter in word if letter.isalpha()]
    if len(letters) < 2 or not letters[0].isupper():
        return ""
    if all(letter.isupper() for letter in letters):
        return "upper"
    return "capital" if not is_first and all(letter.islower() for letter in letters[1:]) else ""


def _apply_case(word: str, case: Literal["", "upper", "capital"]) -> str:
    """Change a word in lower case. Any other case is that of the model."""
    if not case or not word.islower():
        return word
    return word.upper() if case == "upper" else _capitalise(word)


def _begins_with_capital(word: str) -> bool:
    return next((letter.isupper() for letter in word if letter.isalpha()), False)


def _capitalise(word: str) -> str:
    """Return the word with its first letter in upper case."""
    place = next((number for number, letter in enumerate(word) if letter.isalpha()), None)
    return word if place is None else word[:place] + word[place].upper() + word[place + 1 :]
