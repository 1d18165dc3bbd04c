"""Noun phrases: a noun with its article, number and adjective, and the Chinese measure word.

A measure word is linked to its noun: 本 to "book", and 这本 to both "the" and "book".
"""

from random import Random

from attendo.demo_task.nouns import ATTRIBUTES_BY_NOUN, nouns
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.words import Adjective, Noun, article

NUMBERS = (
    ("two", "两"),
    ("three", "三"),
    ("four", "四"),
    ("five", "五"),
    ("six", "六"),
    ("seven", "七"),
    ("eight", "八"),
    ("nine", "九"),
    ("ten", "十"),
)

# Seven boats or nine cakes are unlikely.
_RARELY_MANY = frozenset(nouns("few"))


def the(noun: Noun, adjective: Adjective | None = None) -> Phrase:
    """the book, 这本 书"""
    return weave(
        "the¹ {noun}", f"这{noun.measure}¹@noun {{noun}}", head="noun", noun=_with_adjective(noun.one, adjective)
    )


def that(noun: Noun, adjective: Adjective | None = None) -> Phrase:
    """that book, 那本 书"""
    return weave(
        "that¹ {noun}", f"那{noun.measure}¹@noun {{noun}}", head="noun", noun=_with_adjective(noun.one, adjective)
    )


def a(noun: Noun, adjective: Adjective | None = None) -> Phrase:
    """a book, 一 本 书"""
    inner = _with_adjective(noun.one, adjective)
    return weave(f"{article(inner.english[0])}¹ {{noun}}", f"一¹ {noun.measure}@noun {{noun}}", head="noun", noun=inner)


def several(number: tuple[str, str], noun: Noun) -> Phrase:
    """three books, 三 本 书"""
    return weave(
        "{count} {noun}",
        f"{{count}} {noun.measure}@noun {{noun}}",
        joins="count+noun",
        head="noun",
        count=phrase(*number),
        noun=noun.many,
    )


def some(noun: Noun) -> Phrase:
    """some books, 一些 书"""
    return weave("some¹ {noun}", "一些¹ {noun}", head="noun", noun=noun.many)


def these(noun: Noun) -> Phrase:
    """these books, 这些 书"""
    return weave("these¹ {noun}", "这些¹ {noun}", head="noun", noun=noun.many)


def those(noun: Noun) -> Phrase:
    """those books, 那些 书"""
    return weave("those¹ {noun}", "那些¹ {noun}", head="noun", noun=noun.many)


def plain_definite(noun: Noun, dice: Random) -> Phrase:
    """Return a phrase with the or that, without an adjective."""
    return (the if dice.random() < 0.65 else that)(noun)


def definite(noun: Noun, dice: Random) -> Phrase:
    """Return a phrase with the or that, in 30% of cases with an adjective."""
    return (the if dice.random() < 0.65 else that)(noun, maybe_adjective(noun, dice))


def any_number(noun: Noun, dice: Random, numbers: tuple[tuple[str, str], ...] = NUMBERS) -> Phrase:
    """Return two to ten of the noun, but only few of large or expensive things."""
    return several(dice.choice(numbers[:2] if noun in _RARELY_MANY else numbers), noun)


def indefinite(noun: Noun, dice: Random) -> Phrase:
    """Return a phrase with a, a number or some."""
    draw = dice.random()
    if draw < 0.5:
        return a(noun, maybe_adjective(noun, dice))
    return any_number(noun, dice) if draw < 0.9 or noun in _RARELY_MANY else some(noun)


def one_thing(noun: Noun, dice: Random) -> Phrase:
    """Return a phrase with the, that or a."""
    return definite(noun, dice) if dice.random() < 0.5 else a(noun, maybe_adjective(noun, dice))


def any_thing(noun: Noun, dice: Random) -> Phrase:
    return definite(noun, dice) if dice.random() < 0.5 else indefinite(noun, dice)


def maybe_adjective(noun: Noun, dice: Random) -> Adjective | None:
    """Return an adjective that fits the noun with probability 0.3, else None."""
    choices = ATTRIBUTES_BY_NOUN.get(noun.name)
    return dice.choice(choices) if choices and dice.random() < 0.3 else None


def _with_adjective(noun: Phrase, adjective: Adjective | None) -> Phrase:
    if adjective is None:
        return noun
    return weave("{how} {noun}", "{how} {noun}", joins="how+noun", head="noun", how=adjective.before, noun=noun)
