"""Nouns, verbs and adjectives with their English inflections, read from compact tables."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from attendo.demo_task.phrase import Phrase, phrase

VOWELS = "aeiou"


@dataclass(frozen=True, eq=False)
class Noun:
    """`measure` is the Chinese measure word, empty for mass nouns. `many` is also the bare form."""

    name: str
    measure: str
    one: Phrase
    many: Phrase


Nouns = tuple[Noun, ...]

MIN_HEAD_NOUNS = 4


@dataclass(frozen=True, eq=False)
class Verb:
    """All forms with their Chinese. The past includes 了, except in a relative clause."""

    name: str
    base: Phrase
    third: Phrase
    past: Phrase
    past_in_clause: Phrase
    participle: Phrase
    ing: Phrase
    nouns: Nouns = ()

    def present(self, subject: Phrase) -> Phrase:
        return self.third if subject.agreement == "he" else self.base


@dataclass(frozen=True, eq=False)
class Adjective:
    """`before` precedes a noun: one syllable without 的 (大 狗), more syllables with it (漂亮 的 花)."""

    name: str
    plain: Phrase
    before: Phrase
    comparative: Phrase
    nouns: Nouns = ()


def make_count_nouns(measure: str, table: str) -> Nouns:
    """Make the nouns of one measure word from comma-separated rows like `cat 猫` or `mouse/mice 老鼠`."""
    nouns = []
    for forms, chinese in _parse_table(table):
        name, _, many = forms.partition("/")
        plural = phrase(many or with_s(name), chinese, name, "they")
        nouns.append(Noun(name, measure, phrase(name, chinese, name), plural))
    return tuple(nouns)


def make_mass_nouns(table: str) -> Nouns:
    """Make mass nouns from rows like `rice 米饭`."""
    rows = ((name, phrase(name, chinese, name)) for name, chinese in _parse_table(table))
    return tuple(Noun(name, "", bare, bare) for name, bare in rows)


def verb(english: str, chinese: str, nouns: Nouns = ()) -> Verb:
    """Make a verb from `help`, `buy bought` or `eat ate eaten`. `listen-to` inflects its first word only."""
    name, *irregular = english.split()
    past = irregular[0] if irregular else _inflect_first_word(with_ed, name)
    participle = irregular[1] if len(irregular) > 1 else past
    # A verb with few nouns has no head and no combinations, because all of them could be held out for the test.
    head = "" if 0 < len(nouns) < MIN_HEAD_NOUNS else name
    return Verb(
        name,
        _make_form(name, chinese, head),
        _make_form("has" if name == "have" else _inflect_first_word(with_s, name), chinese, head),
        _make_form(past, chinese + " 了", head),
        _make_form(past, chinese, head),
        _make_form(participle, chinese, head),
        _make_form(_inflect_first_word(with_ing, name), chinese, head),
        nouns,
    )


def adjective(english: str, chinese: str, nouns: Nouns = ()) -> Adjective:
    """Make an adjective from `big bigger` or, if compared with more, `expensive`."""
    name, _, comparative = english.partition(" ")
    before = chinese if len(chinese) == 1 else chinese + " 的"
    return Adjective(
        name,
        phrase(name, chinese, name),
        phrase(name, before, name),
        phrase(comparative or "more " + name, chinese, name),
        nouns,
    )


def _parse_table(table: str) -> Iterator[tuple[str, str]]:
    for row in table.split(","):
        name, chinese = row.split()
        yield name, chinese


def _inflect_first_word(change: Callable[[str], str], verb: str) -> str:
    first, dash, rest = verb.partition("-")
    return change(first) + dash + rest


def _make_form(english: str, chinese: str, head: str) -> Phrase:
    return replace(phrase(english.replace("-", " "), chinese), head=head)


def article(word: str) -> str:
    """Return `an` before a vowel. The lexicon has no word like "hour" or "university" after an article."""
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
    return verb + "d" if verb.endswith("e") else _double_consonant(verb) + "ed"


def with_ing(verb: str) -> str:
    """eat, eating; write, writing; see, seeing; swim, swimming."""
    if re.search(r"[^e]e$", verb):
        return verb[:-1] + "ing"
    return _double_consonant(verb) + "ing"


def _double_consonant(verb: str) -> str:
    """A short verb with one vowel before one consonant doubles it."""
    return verb + verb[-1] if re.fullmatch(r"[^aeiou]+[aeiou][^aeiouwxy]", verb) else verb
