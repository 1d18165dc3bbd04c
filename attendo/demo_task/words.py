"""Words with their English inflections, made from compact rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from attendo.demo_task.phrase import Agreement, Phrase, phrase, weave

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


@dataclass(frozen=True)
class Pronoun:
    """`kin_possessive` is for family, without 的: my mother, 我 妈妈. `possessive` is for others: my pen, 我 的 笔."""

    subject: Phrase
    object: Phrase
    kin_possessive: Phrase
    possessive: Phrase


@dataclass(frozen=True)
class Location:
    """A location to go `to`, and to be or work `at`."""

    name: Phrase
    to: Phrase
    at: Phrase


@dataclass(frozen=True)
class Spot:
    """A spot for things: on the table, 桌子 上. The Chinese side word follows the noun."""

    where: Phrase
    nouns: Nouns


def make_nouns(measure: str, table: str) -> Nouns:
    """Make nouns from comma-separated rows like `cat 猫` or `mouse/mice 老鼠`. The measure of mass nouns is `mass`."""
    nouns = []
    for row in table.split(","):
        forms, chinese = row.split()
        name, _, many = forms.partition("/")
        one = phrase(name, chinese, name)
        if measure == "mass":
            nouns.append(Noun(name, "", one, one))
        else:
            nouns.append(Noun(name, measure, one, phrase(many or with_s(name), chinese, name, "they")))
    return tuple(nouns)


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


def activity(doing: Verb, rest: str = "", chinese: str = "") -> Verb:
    """Add a fixed object to a verb, such as football to play. An activity never has 了, so its past is not changed."""
    if not rest:
        return doing
    article, fixed = "the " if rest.startswith("the ") else "", phrase(rest.removeprefix("the "), chinese)

    def add_rest(form: Phrase) -> Phrase:
        return weave(f"{{verb}} {article}{{rest}}", "{verb} {rest}", head="rest", verb=form, rest=fixed)

    return replace(doing, base=add_rest(doing.base), third=add_rest(doing.third), ing=add_rest(doing.ing))


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


def pronoun(english: str, chinese: str, agreement: Agreement) -> Pronoun:
    """Make a pronoun from `he him his`."""
    subject, object_, own = english.split()
    return Pronoun(
        phrase(subject, chinese, subject, agreement),
        phrase(object_, chinese, object_, agreement),
        phrase(own, chinese, own),
        phrase(own, chinese + " 的", own),
    )


def location(english: str, chinese: str) -> Location:
    """Make a location from `at the bank` and `银行`, or `in the park` and `公园 里`."""
    preposition, *article, name = english.split()
    chinese_name, *side = chinese.split()
    the, inside, noun = " ".join(article), "".join(f"{word}¹" for word in side), phrase(name, chinese_name)
    return Location(
        noun,
        weave(f"to {the} {{noun}}", "{noun}", head="noun", noun=noun),
        weave(f"{preposition}¹ {the} {{noun}}", f"在¹ {{noun}} {inside}", head="noun", noun=noun),
    )


def spots(preposition: str, chinese: str, where: str, things: Nouns) -> tuple[Spot, ...]:
    """Make one spot for each `noun 名词` of `where`."""
    side = phrase(preposition, chinese)
    names = (phrase(name, chinese_name) for name, chinese_name in map(str.split, where.split(",")))
    return tuple(
        Spot(weave("{side} the {noun}", "{noun} {side}", head="noun", side=side, noun=name), things) for name in names
    )


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
