"""Phrases as ids: in which ways a tokenizer can come to write a text, and whether an answer holds it.

    words, sentencepiece    a space belongs to the word behind it, and a text begins as if behind one: `cat` is the same
                            at the beginning and behind a space; another way to write it is behind a sign, or inside a
                            word, without a space
    foreign_pieces          as sentencepiece, but the other way is not known
    byte_pairs              a space belongs to the word behind it, and a text begins as if behind none
    characters, bytes       there is but one way

A learnt tokenizer could also put a phrase together from smaller pieces than it would cut it into.
"""

import re
from collections.abc import Sequence

from attendo.data.line_breaks import LINE
from attendo.errors import UsageError
from attendo.metrics.scripts import SCRIPTS_WITHOUT_SPACES, script_of
from attendo.text import UNK, Tokenizer
from attendo.text.tokenizer import MARK

Ids = tuple[int, ...]

# Kinds whose pieces bring the space before them.
_SPACE_BEFORE = ("words", "sentencepiece", "foreign_pieces", "byte_pairs")


def behind_a_space(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Also at the beginning of a text, but for byte pairs."""
    return tuple(tokenizer.encode(f" {phrase}" if tokenizer.kind == "byte_pairs" else phrase))


def inside(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Right behind another sign."""
    if tokenizer.kind == "sentencepiece":
        # A mark in the text is kept apart from what stands behind it, which is thus encoded without a space.
        return tuple(tokenizer.encode(MARK + phrase)[len(tokenizer.encode(MARK)) :])
    if tokenizer.kind == "words":
        return tuple(tokenizer.encode("(" + phrase)[1:])
    return tuple(tokenizer.encode(phrase))


def banned_ways(tokenizer: Tokenizer, phrases: Sequence[str]) -> tuple[Ids, ...]:
    """All ways to cut these; what the vocabulary does not have cannot be said anyway."""
    ways = [way for phrase in phrases for way in (behind_a_space(tokenizer, phrase), inside(tokenizer, phrase))]
    return tuple(dict.fromkeys(way for way in ways if way and UNK not in way))


def required_ways(tokenizer: Tokenizer, phrases: Sequence[str]) -> list[tuple[Ids, ...]]:
    """Ways to ask for all phrases together, of which the best answer counts.

    In scripts without spaces a word may stand behind a space, as in text that was cut into words, or not: then both are
    tried.
    """
    spaced = [behind_a_space(tokenizer, phrase) for phrase in phrases]
    for phrase, ids in zip(phrases, spaced, strict=True):
        if UNK in ids:
            missing = ", ".join(map(repr, tokenizer.unknown(phrase)))
            raise UsageError(f"constraint {phrase!r} cannot be said: the target vocabulary does not have {missing}")
    glued = [
        way if _without_spaces(phrase[0]) and UNK not in (way := inside(tokenizer, phrase)) else ids
        for phrase, ids in zip(phrases, spaced, strict=True)
    ]
    return list(dict.fromkeys((tuple(spaced), tuple(glued))))


def prefix_ids(tokenizer: Tokenizer, prefix: str) -> Ids:
    """As `beginning_ids`. What the vocabulary does not have is refused."""
    ids = beginning_ids(tokenizer, prefix)
    if UNK in ids:
        missing = ", ".join(map(repr, tokenizer.unknown(prefix)))
        raise UsageError(f"prefix {prefix!r} cannot be said: the target vocabulary does not have {missing}")
    return ids


def beginning_ids(tokenizer: Tokenizer, text: str) -> Ids:
    """Where the word that follows brings its own space, that at the end of the text is left out."""
    if tokenizer.kind in _SPACE_BEFORE:
        text = text.rstrip(" " if LINE in tokenizer.symbols else None)  # behind a line break another line begins
    return tuple(tokenizer.encode(text))


def checked_phrases(phrases: Sequence[str], name: str) -> tuple[str, ...]:
    """Without white space around them."""
    if isinstance(phrases, str):
        raise UsageError(f"{name} is a list of phrases: write [{phrases!r}] for a single one")
    for phrase in phrases:
        if not isinstance(phrase, str) or not phrase.strip():
            raise UsageError(f"{name} holds {phrase!r}: a phrase is text that is more than white space")
    return tuple(phrase.strip() for phrase in phrases)


def holds(text: str, phrase: str) -> bool:
    """As words of their own, not as a part of longer ones; in scripts without spaces anywhere."""
    before = r"(?<!\w)" if _is_letter(phrase[0]) else ""
    after = r"(?!\w)" if _is_letter(phrase[-1]) else ""
    return re.search(before + re.escape(phrase) + after, text) is not None


def held(text: str, phrases: Sequence[str]) -> tuple[bool, ...]:
    """Of each phrase whether it stands there; the same one n times over must stand there n times."""
    return tuple(text.count(phrase) > phrases[:n].count(phrase) for n, phrase in enumerate(phrases))


def written(tokenizer: Tokenizer, ids: Ids, phrase: str) -> Ids:
    """The ids by which an answer came to hold a phrase."""
    end = next(n for n in range(1, len(ids) + 1) if holds(tokenizer.decode(ids[:n]), phrase))
    begin = next(n for n in reversed(range(end)) if phrase in tokenizer.decode(ids[n:end]))
    return ids[begin:end]


def _is_letter(character: str) -> bool:
    return re.match(r"\w", character) is not None and not _without_spaces(character)


def _without_spaces(character: str) -> bool:
    return script_of(character) in SCRIPTS_WITHOUT_SPACES
