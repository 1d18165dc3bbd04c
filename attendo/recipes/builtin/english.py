"""How English words change: the regular endings, and a or an."""

import re

VOWELS = "aeiou"


def article(word: str) -> str:
    """`an` before a vowel; the lexicon holds no word like "hour" or "university" behind an article."""
    return "an" if word[0] in VOWELS else "a"


def with_s(word: str) -> str:
    """cat, cats; box, boxes; city, cities; watch, watches; go, goes."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    if re.search(r"(s|x|ch|sh)$", word) or word in ("go", "do", "tomato", "potato"):
        return word + "es"
    return word + "s"


def with_ed(verb: str) -> str:
    """help, helped; like, liked; study, studied; chat, chatted."""
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ied"
    return verb + "d" if verb.endswith("e") else _doubled(verb) + "ed"


def with_ing(verb: str) -> str:
    """eat, eating; write, writing; see, seeing; swim, swimming."""
    if re.search(r"[^e]e$", verb):
        return verb[:-1] + "ing"
    return _doubled(verb) + "ing"


def _doubled(verb: str) -> str:
    """A short verb with one vowel before one consonant doubles it."""
    return verb + verb[-1] if re.fullmatch(r"[^aeiou]+[aeiou][^aeiouwxy]", verb) else verb
