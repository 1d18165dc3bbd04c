"""Person phrases: pronouns, names, family members, definite persons, and jobs."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from attendo.demo_task.lexicon import FAMILY, NAMES, PRONOUNS, nouns
from attendo.demo_task.noun_phrases import that, the, these, those
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.words import Noun, Pronoun, article

FRIENDS, PERSONS, JOBS, _PROFESSIONS = nouns("friends"), nouns("persons"), nouns("jobs"), nouns("professions")
# Excludes overlapping subject and object, such as "I know us".
_APART = (PRONOUNS[:4], PRONOUNS[1:])


def someone(dice: Random, pronouns: Sequence[Pronoun] = PRONOUNS) -> Phrase:
    """Return any subject of a sentence."""
    return dice.choice(pronouns).subject if dice.random() < 0.4 else someone_named(dice, pronouns)


_OTHERS = tuple(pronoun for pronoun in PRONOUNS if pronoun.subject.head not in ("I", "we"))


def someone_with(noun: Noun, dice: Random, choose: Callable[[Random], Phrase] = someone) -> Phrase:
    """Return a person whom the thing suits: no cars for children, no single coat for several people."""
    who = choose(dice)
    while (noun in _FOR_ADULTS and who.head in _MINORS) or (noun in _FOR_ONE and is_group(who)):
        who = choose(dice)
    return who


_FOR_ADULTS, _FOR_ONE = frozenset(nouns("for_adults")), frozenset(nouns("for_one"))
_MINORS = ("child", "boy", "girl", "son", "daughter", "classmate")


def someone_named(dice: Random, owners: Sequence[Pronoun] = PRONOUNS) -> Phrase:
    """Return any person except a pronoun."""
    draw = dice.random()
    if draw < 0.25:
        return dice.choice(NAMES)
    if draw < 0.5:
        return relative(dice, owners)
    point = the if draw < 0.7 else that if draw < 0.84 else these if draw < 0.92 else those
    return point(dice.choice(PERSONS))


def someone_known(dice: Random, pronouns: Sequence[Pronoun] = PRONOUNS) -> Phrase:
    """Return a pronoun, a name or a relative, which need no demonstrative."""
    draw = dice.random()
    if draw < 0.5:
        return dice.choice(pronouns).subject
    return dice.choice(NAMES) if draw < 0.75 else relative(dice, pronouns)


# Persons that are not first person, for questions.
someone_else, someone_known_else = partial(someone, pronouns=_OTHERS), partial(someone_known, pronouns=_OTHERS)


def two_people(dice: Random) -> tuple[Pronoun, Pronoun]:
    """Return two pronouns that do not include each other."""
    one, other = dice.sample(dice.choice(_APART), 2)
    return one, other


def relative(dice: Random, owners: Sequence[Pronoun] = PRONOUNS) -> Phrase:
    """my mother, 我 妈妈; my friend, 我 的 朋友"""
    owner = dice.choice(owners)
    if dice.random() < 0.67:
        return weave(
            "{owner} {noun}", "{owner} {noun}", head="noun", owner=owner.kin_possessive, noun=dice.choice(FAMILY).one
        )
    return possessive_phrase(owner, dice.choice(FRIENDS))


def possessive_phrase(owner: Pronoun, noun: Noun) -> Phrase:
    """my book, 我 的 书"""
    return weave(
        "{owner} {noun}", "{owner} {noun}", joins="owner+noun", head="noun", owner=owner.possessive, noun=noun.one
    )


def owner(dice: Random) -> Phrase:
    """my, 我 的; Anna's, 安娜 的; my mother's, 我 妈妈 的"""
    draw = dice.random()
    if draw < 0.25:
        return dice.choice(PRONOUNS[:4]).possessive
    if draw < 0.6:
        return _genitive(dice.choice(NAMES))
    kin, parent = dice.choice(PRONOUNS).kin_possessive, _genitive(dice.choice(FAMILY).one)
    return weave("{kin} {parent}", "{kin} {parent}", head="parent", kin=kin, parent=parent)


def _genitive(person: Phrase) -> Phrase:
    return phrase(person.english[0] + "'s", person.chinese[0] + " 的", person.head)


def is_group(who: Phrase) -> bool:
    return who.agreement == "they" and who.head != "you"


def a_job(who: Phrase, dice: Random) -> Noun:
    """Return a job, but not "student" for a classmate (redundant) or a grandparent (implausible)."""
    grown_up = who.head in ("classmate", "grandmother", "grandfather")
    return dice.choice(_PROFESSIONS if grown_up else JOBS)


def role(who: Phrase, job: Noun) -> Phrase:
    """a doctor, 医生: Chinese uses a measure word for a profession that is affirmed, not for one in doubt."""
    if is_group(who):
        return job.many
    return weave(f"{article(job.name)} {{noun}}", "{noun}", head="noun", noun=job.one)
