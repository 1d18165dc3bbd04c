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

from attendo.errors import UsageError
from attendo.text import UNK, Tokenizer
from attendo.text.newlines import NEWLINE_SYMBOL
from attendo.text.scripts import SCRIPTS_WITHOUT_SPACES, find_script
from attendo.text.tokenizer import MARK

Ids = tuple[int, ...]

_BYTE = re.compile("<0x([0-9A-F]{2})>")  # how pieces show the bytes of a character
# First bytes of UTF-8 that are those of letters, in scripts with spaces: Latin to Arabic, Indic, Hangul; and of ASCII.
_LETTER_BYTES = {*b"_0123456789", *range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC3, 0xE2), *range(0xEA, 0xEE)}
# Kinds whose pieces bring the space before them.
_SPACE_PREFIX_KINDS = ("words", "sentencepiece", "foreign_pieces", "byte_pairs")


def encode_after_space(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Also at the beginning of a text, but for byte pairs."""
    return tuple(tokenizer.encode(f" {phrase}" if tokenizer.kind == "byte_pairs" else phrase))


def encode_without_space(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Right behind another sign."""
    if tokenizer.kind == "sentencepiece":
        # A mark in the text is kept apart from what stands behind it, which is thus encoded without a space.
        return tuple(tokenizer.encode(MARK + phrase)[len(tokenizer.encode(MARK)) :])
    if tokenizer.kind == "words":
        return tuple(tokenizer.encode("(" + phrase)[1:])
    return tuple(tokenizer.encode(phrase))


def banned_token_sequences(tokenizer: Tokenizer, phrases: Sequence[str]) -> tuple[Ids, ...]:
    """Ways to cut these that begin a word; what the vocabulary does not have cannot be said anyway.

    Pieces that stand inside a word too are left open: `schaft` would close `Mannschaft`. Where a phrase comes to be
    written with them, behind a sign, that is seen when it is said.
    """
    ways = [
        way
        for phrase in phrases
        for way in (_encode_at_word_start(tokenizer, phrase), _encode_standalone(tokenizer, phrase))
    ]
    return tuple(dict.fromkeys(way for way in ways if way and UNK not in way))


def required_token_sequences(tokenizer: Tokenizer, phrases: Sequence[str]) -> list[tuple[Ids, ...]]:
    """Ways to ask for all phrases together, of which the best answer counts.

    In scripts without spaces a word may stand behind a space, as in text that was cut into words, or not; and where a
    space is a token of its own, it may come first or not: then both are tried.
    """
    spaced = [_encode_at_word_start(tokenizer, phrase) for phrase in phrases]
    for phrase, ids in zip(phrases, spaced, strict=True):
        if UNK in ids:
            missing = ", ".join(map(repr, tokenizer.unknown(phrase)))
            raise UsageError("constraint_not_in_vocabulary", phrase=phrase, missing=missing)
    glued = [
        way if _may_be_glued(tokenizer, phrase) and UNK not in (way := encode_without_space(tokenizer, phrase)) else ids
        for phrase, ids in zip(phrases, spaced, strict=True)
    ]
    return list(dict.fromkeys((tuple(spaced), tuple(glued))))


def encode_prefix(tokenizer: Tokenizer, prefix: str) -> Ids:
    """As `encode_prompt`. What the vocabulary does not have is refused."""
    ids = encode_prompt(tokenizer, prefix)
    if UNK in ids:
        missing = ", ".join(map(repr, tokenizer.unknown(prefix)))
        raise UsageError("prefix_not_in_vocabulary", prefix=prefix, missing=missing)
    return ids


def encode_prompt(tokenizer: Tokenizer, text: str) -> Ids:
    """Where the word that follows brings its own space, that at the end of the text is left out."""
    if tokenizer.kind in _SPACE_PREFIX_KINDS:
        text = text.rstrip(
            " " if NEWLINE_SYMBOL in tokenizer.symbols else None
        )  # behind a line break another line begins
    return tuple(tokenizer.encode(text))


def validate_phrases(phrases: Sequence[str], name: str) -> tuple[str, ...]:
    """Without white space around them."""
    if isinstance(phrases, str):
        raise UsageError("phrases_not_list", option=name, phrases=phrases)
    for phrase in phrases:
        if not isinstance(phrase, str) or not phrase.strip():
            raise UsageError("phrase_blank_or_invalid", option=name, phrase=phrase)
    return tuple(phrase.strip() for phrase in phrases)


def contains(text: str, phrase: str) -> bool:
    """As words of their own, not as a part of longer ones; in scripts without spaces anywhere."""
    return _count_occurrences(text, phrase) > 0


def contains_each(text: str, phrases: Sequence[str]) -> tuple[bool, ...]:
    """Of each phrase whether the text holds it; the same one n times over must stand there n times."""
    return tuple(_count_occurrences(text, phrase) > phrases[:n].count(phrase) for n, phrase in enumerate(phrases))


def extends_last_word(tokenizer: Tokenizer, phrase: Ids, token: int) -> bool:
    """Whether a token right behind a phrase makes its last word longer."""
    before, after = tokenizer.decode(phrase), tokenizer.decode((*phrase, token))
    if byte := _BYTE.fullmatch(tokenizer.pieces([token])[0]):
        return _is_letter(before[-1:]) and int(byte[1], 16) in _LETTER_BYTES
    return after.startswith(before) and _is_inside_word(after, len(before))


def find_phrase_ids(tokenizer: Tokenizer, ids: Ids, phrase: str) -> Ids:
    """The ids by which an answer came to hold a phrase."""
    end = next(n for n in range(1, len(ids) + 1) if contains(tokenizer.decode(ids[:n]), phrase))
    begin = next(n for n in reversed(range(end)) if phrase in tokenizer.decode(ids[n:end]))
    return ids[begin:end]


def _count_occurrences(text: str, phrase: str) -> int:
    """How many times a text holds a phrase, no letter counted twice."""
    count, begin = 0, text.find(phrase)
    while begin >= 0:
        end = begin + len(phrase)
        alone = not _is_inside_word(text, begin) and not _is_inside_word(text, end)
        count += alone
        begin = text.find(phrase, end if alone else begin + 1)
    return count


def _is_inside_word(text: str, position: int) -> bool:
    """Whether the characters on both sides of a place are of one word."""
    return 0 < position < len(text) and _is_letter(text[position - 1]) and _is_letter(text[position])


def _encode_at_word_start(tokenizer: Tokenizer, phrase: str) -> Ids:
    """So that it begins a word."""
    ids = encode_after_space(tokenizer, phrase)
    if tokenizer.kind in _SPACE_PREFIX_KINDS or not _is_letter(phrase[0]):
        return ids
    spaced = tuple(tokenizer.encode(f" {phrase}"))
    return ids if UNK in spaced else spaced


def _encode_standalone(tokenizer: Tokenizer, phrase: str) -> Ids:
    """As inside a text, where that cannot be inside a longer word."""
    return encode_without_space(tokenizer, phrase) if tokenizer.kind == "words" or not _is_letter(phrase[0]) else ()


def _may_be_glued(tokenizer: Tokenizer, phrase: str) -> bool:
    return _is_unspaced(phrase[0]) or tokenizer.kind not in _SPACE_PREFIX_KINDS


def _is_letter(character: str) -> bool:
    return re.match(r"\w", character) is not None and not _is_unspaced(character)


def _is_unspaced(character: str) -> bool:
    return find_script(character) in SCRIPTS_WITHOUT_SPACES
