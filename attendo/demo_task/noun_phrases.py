"""Noun phrases: a noun with its article, number and adjective, and the Chinese measure word.

A measure word is linked to its noun: 本 to "book", and 这本 to both "the" and "book".
"""

from collections.abc import Sequence
from functools import partial
from random import Random

from attendo.demo_task.lexicon import ATTRIBUTES_BY_NOUN, NUMBERS, nouns
from attendo.demo_task.phrase import Phrase, weave
from attendo.demo_task.words import Adjective, Noun, article

# Seven boats or nine cakes are unlikely.
_RARELY_MANY = frozenset(nouns("few"))


def _singular(english: str, chinese: str, noun: Noun, adjective: Adjective | None = None) -> Phrase:
    """the book, 这本 书"""
    inner = _with_adjective(noun.one, adjective)
    return weave(f"{english}¹ {{noun}}", f"{chinese}{noun.measure}¹@noun {{noun}}", head="noun", noun=inner)


def _plural(english: str, chinese: str, noun: Noun) -> Phrase:
    """some books, 一些 书"""
    return weave(f"{english}¹ {{noun}}", f"{chinese}¹ {{noun}}", head="noun", noun=noun.many)


the, that, which = partial(_singular, "the", "这"), partial(_singular, "that", "那"), partial(_singular, "which", "哪")
some, these, those = (
    partial(_plural, "some", "一些"),
    partial(_plural, "these", "这些"),
    partial(_plural, "those", "那些"),
)


def a(noun: Noun, adjective: Adjective | None = None) -> Phrase:
    """a book, 一 本 书"""
    inner = _with_adjective(noun.one, adjective)
    return weave(f"{article(inner.english[0])}¹ {{noun}}", f"一¹ {noun.measure}@noun {{noun}}", head="noun", noun=inner)


def several(number: Phrase, noun: Noun, joins: str = "number+noun") -> Phrase:
    """three books, 三 本 书"""
    chinese = f"{{number}} {noun.measure}@noun {{noun}}"
    return weave("{number} {noun}", chinese, joins=joins, head="noun", number=number, noun=noun.many)


def plain_definite(noun: Noun, dice: Random) -> Phrase:
    """Return a phrase with the or that, without an adjective."""
    return (the if dice.random() < 0.65 else that)(noun)


def definite(noun: Noun, dice: Random) -> Phrase:
    """Return a phrase with the or that, in 30% of cases with an adjective."""
    return (the if dice.random() < 0.65 else that)(noun, maybe_adjective(noun, dice))


def any_number(noun: Noun, dice: Random, numbers: Sequence[Phrase] = NUMBERS) -> Phrase:
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
