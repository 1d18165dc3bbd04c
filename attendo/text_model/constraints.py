"""Phrases as token ids: the encodings a tokenizer may produce, and checks whether a text contains a phrase.

    words, sentencepiece    a space belongs to the next word, and a text starts as if after a space. `cat` has the same
                            ids at the start and after a space. It has other ids after punctuation or inside a word.
    foreign_pieces          as sentencepiece, but the encoding without a space is unknown
    byte_pairs              a space belongs to the next word, and a text starts as if without a space
    characters, bytes       there is only one encoding

A trained tokenizer may also decode a phrase from smaller pieces than it encodes it into.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from attendo.errors import UsageError
from attendo.text import UNK, Tokenizer
from attendo.text.newlines import NEWLINE_SYMBOL, SPACE_PREFIX_KINDS
from attendo.text.scripts import is_unspaced, unspaced_class
from attendo.text.tokenizer import MARK

Ids = tuple[int, ...]
Phrase = str | tuple[str, ...]  # a required phrase, or forms of which any is required
RequiredIds = Ids | tuple[Ids, ...]  # the encoding of a phrase, or those of all forms

_BYTE = re.compile("<0x([0-9A-F]{2})>")  # a byte piece, as `Tokenizer.pieces` shows it
# First UTF-8 bytes of letters in scripts with spaces: ASCII, Latin to Arabic, Indic, Hangul.
_LETTER_BYTES = {*b"_0123456789", *range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC3, 0xE2), *range(0xEA, 0xEE)}


def encode_after_space(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Encode a phrase after a space. Except for byte pairs, this is also the encoding at the start of a text."""
    return tuple(tokenizer.encode(f" {phrase}" if tokenizer.kind == "byte_pairs" else phrase))


def encode_without_space(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Encode a phrase directly after another character, such as punctuation."""
    if tokenizer.kind == "sentencepiece":
        # A mark is encoded separately, so the text after it gets no space.
        return tuple(tokenizer.encode(MARK + phrase)[len(tokenizer.encode(MARK)) :])
    if tokenizer.kind == "words":
        return tuple(tokenizer.encode("(" + phrase)[1:])
    return tuple(tokenizer.encode(phrase))


def encode_banned_phrases(tokenizer: Tokenizer, phrases: Sequence[str]) -> tuple[Ids, ...]:
    """Return encodings of the phrases that start a word. Sequences with UNK cannot be generated and are skipped.

    Pieces that also occur inside words are not banned: `schaft` would block `Mannschaft`. A phrase that is written with
    such pieces, as after punctuation, is detected in the output.
    """
    sequences = [
        ids
        for phrase in phrases
        for ids in (_encode_at_word_start(tokenizer, phrase), _encode_standalone(tokenizer, phrase))
    ]
    return tuple(dict.fromkeys(ids for ids in sequences if ids and UNK not in ids))


def encode_constraints(tokenizer: Tokenizer, phrases: Sequence[Phrase]) -> list[tuple[RequiredIds, ...]]:
    """Return alternative encodings of all phrases together. The best result of all searches is used.

    Two encodings are tried if a phrase may occur with or without a space before it. That is so in scripts without
    spaces, and if a space is a token of its own. Forms are searched for with both encodings at once.
    """
    spaced, glued = list[RequiredIds](), list[RequiredIds]()
    for phrase in phrases:
        if isinstance(phrase, str):
            encodings = encode_phrase(tokenizer, phrase)
            spaced.append(encodings[0])
            glued.append(encodings[-1])
        else:
            every = tuple(dict.fromkeys(ids for form in phrase for ids in encode_phrase(tokenizer, form)))
            spaced.append(every)
            glued.append(every)
    return list(dict.fromkeys((tuple(spaced), tuple(glued))))


def can_generate(tokenizer: Tokenizer, phrase: str) -> bool:
    """Whether the vocabulary has all parts of a phrase."""
    return UNK not in _encode_at_word_start(tokenizer, phrase)


def encode_phrase(tokenizer: Tokenizer, phrase: str) -> list[Ids]:
    """Return the encoding of a phrase that starts a word, and the one without a space before it, if it can occur."""
    ids = _encode_at_word_start(tokenizer, phrase)
    if UNK in ids:
        missing = ", ".join(map(repr, tokenizer.unknown(phrase)))
        raise UsageError("constraint_not_in_vocabulary", phrase=phrase, missing=missing)
    glued = encode_without_space(tokenizer, phrase) if _may_be_glued(tokenizer, phrase) else ids
    return [ids, glued] if UNK not in glued else [ids]


def encode_prefix(tokenizer: Tokenizer, prefix: str) -> Ids:
    """Encode as `encode_prompt`. Raise a `UsageError` if the vocabulary lacks a part of it."""
    ids = encode_prompt(tokenizer, prefix)
    if UNK in ids:
        missing = ", ".join(map(repr, tokenizer.unknown(prefix)))
        raise UsageError("prefix_not_in_vocabulary", prefix=prefix, missing=missing)
    return ids


def encode_prompt(tokenizer: Tokenizer, text: str) -> Ids:
    """Encode a text without its final space if the tokenizer adds a space to the next word."""
    if tokenizer.kind in SPACE_PREFIX_KINDS:
        text = text.rstrip(" " if NEWLINE_SYMBOL in tokenizer.symbols else None)  # a new line starts after a line break
    return tuple(tokenizer.encode(text))


def validate_phrases(phrases: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the phrases without surrounding white space."""
    if isinstance(phrases, str):
        raise UsageError("phrases_not_list", option=name, phrases=phrases)
    for phrase in phrases:
        if not isinstance(phrase, str) or not phrase.strip():
            raise UsageError("phrase_blank_or_invalid", option=name, phrase=phrase)
    return tuple(phrase.strip() for phrase in phrases)


def contains(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase as whole words. In scripts without spaces any position counts, and no space."""
    return any(True for _ in find_occurrences(text, phrase))


def contains_each(text: str, phrases: Sequence[Phrase]) -> tuple[bool, ...]:
    """Whether a text contains each phrase, or any of its forms. A phrase listed n times must occur n times."""
    counts = {phrase: sum(1 for _ in find_occurrences(text, phrase)) for phrase in phrases}
    return tuple(counts[phrase] > phrases[:n].count(phrase) for n, phrase in enumerate(phrases))


def find_occurrences(text: str, phrase: Phrase) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each occurrence of a phrase, or of its forms, as whole words.

    Occurrences do not overlap: the first is taken, and of those that begin together the longest.
    """
    forms, begin = (phrase,) if isinstance(phrase, str) else phrase, 0
    while spans := [span for form in forms if (span := _find_next(text, form, begin))]:
        first = min(spans, key=lambda span: (span[0], -span[1]))
        yield first
        begin = first[1]


def _find_next(text: str, phrase: str, begin: int) -> tuple[int, int] | None:
    while found := _phrase_pattern(phrase).search(text, begin):
        if not any(is_inside_word(text, position) for position in found.span()):
            return found.span()
        begin = found.start() + 1
    return None


def extends_last_word(tokenizer: Tokenizer, phrase: Ids, token: int) -> bool:
    """Whether a token directly after a phrase extends its last word."""
    before, after = tokenizer.decode(phrase), tokenizer.decode((*phrase, token))
    if byte := _BYTE.fullmatch(tokenizer.pieces([token])[0]):
        return _is_letter(before[-1:]) and int(byte[1], 16) in _LETTER_BYTES
    return after.startswith(before) and is_inside_word(after, len(before))


def find_phrase_ids(tokenizer: Tokenizer, ids: Ids, phrase: str) -> Ids:
    """Return the part of `ids` that produced a phrase."""
    end = next(n for n in range(1, len(ids) + 1) if contains(tokenizer.decode(ids[:n]), phrase))
    begin = next(n for n in reversed(range(end)) if _phrase_pattern(phrase).search(tokenizer.decode(ids[n:end])))
    return ids[begin:end]


@lru_cache(maxsize=1024)
def _phrase_pattern(phrase: str) -> re.Pattern[str]:
    """Match a phrase. Beside a letter of a script without spaces, the text may have a space or none."""
    letters = unspaced_class()
    parts = re.split(f"(?<=[{letters}]) *(?=\\S)|(?<=\\S) *(?=[{letters}])", phrase)
    return re.compile(" ?".join(map(re.escape, parts)))


def is_inside_word(text: str, position: int) -> bool:
    """Whether the characters before and after a position belong to one word."""
    return 0 < position < len(text) and _is_letter(text[position - 1]) and _is_letter(text[position])


def _encode_at_word_start(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Encode a phrase so that it starts a word."""
    ids = encode_after_space(tokenizer, phrase)
    if tokenizer.kind in SPACE_PREFIX_KINDS or not _is_letter(phrase[0]):
        return ids
    spaced = tuple(tokenizer.encode(f" {phrase}"))
    return ids if UNK in spaced else spaced


def _encode_standalone(tokenizer: Tokenizer, phrase: str) -> Ids:
    """Encode a phrase without a space if that cannot continue a word, else return ()."""
    return encode_without_space(tokenizer, phrase) if tokenizer.kind == "words" or not _is_letter(phrase[0]) else ()


def _may_be_glued(tokenizer: Tokenizer, phrase: str) -> bool:
    return is_unspaced(phrase[0]) or tokenizer.kind not in SPACE_PREFIX_KINDS


def _is_letter(character: str) -> bool:
    return re.match(r"\w", character) is not None and not is_unspaced(character)
