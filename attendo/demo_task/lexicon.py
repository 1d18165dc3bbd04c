"""The lexicon: the words of lexicon.toml by group, and balanced sampling of matching words."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from attendo.demo_task.phrase import phrase
from attendo.demo_task.words import (
    Adjective,
    Location,
    Noun,
    Nouns,
    Verb,
    activity,
    adjective,
    location,
    make_nouns,
    pronoun,
    spots,
    verb,
)

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
COMBINATIONS = _TABLES["combinations"]

Member = TypeVar("Member")


def _make_lookup(groups: Mapping[str, str], members: Mapping[str, tuple[Member, ...]]) -> "_Lookup[Member]":
    """Return a function from names, each of a group or of members, to the members."""

    @cache
    def find_members(names: str) -> tuple[Member, ...]:
        return tuple(
            member
            for name in names.split()
            for member in (find_members(groups[name]) if name in groups else members[name])
        )

    return find_members


_Lookup = Callable[[str], tuple[Member, ...]]

CLASSES: dict[str, Nouns] = {
    name: tuple(noun for measure, table in tables.items() for noun in make_nouns(measure, table))
    for name, tables in _TABLES["nouns"].items()
}
nouns: _Lookup[Noun] = _make_lookup(
    _TABLES["groups"], {noun.name: (noun,) for members in CLASSES.values() for noun in members} | CLASSES
)


class TakesNouns(Protocol):
    """A verb, an adjective or a spot, with the nouns that it combines with."""

    @property
    def nouns(self) -> Nouns: ...


Word = TypeVar("Word", bound=TakesNouns)


class Matches(Generic[Word]):
    """Samples a word with one of its nouns. Words with few nouns and nouns with few words keep a fair share."""

    def __init__(self, words: Iterable[Word]) -> None:
        self._pairs: list[tuple[Word, Noun]] = [(word, noun) for word in words for noun in word.nouns]
        per_word = Counter(id(word) for word, _ in self._pairs)
        per_noun = Counter(noun.name for _, noun in self._pairs)
        shares = (
            len(per_noun) / per_word[id(word)] + len(per_word) / per_noun[noun.name] for word, noun in self._pairs
        )
        self._cumulative = list(accumulate(shares))

    def sample(self, dice: Random) -> tuple[Word, Noun]:
        return dice.choices(self._pairs, cum_weights=self._cumulative)[0]


PHRASES = {name: tuple(phrase(*row) for row in rows) for name, rows in _TABLES["phrases"].items()}
NAMES, NUMBERS, DEGREES = PHRASES["names"], PHRASES["numbers"], PHRASES["degrees"]
PAST_TIMES, FUTURE_TIMES = PHRASES["past_times"], PHRASES["future_times"]
PRONOUNS = tuple(pronoun(*row) for row in _TABLES["people"]["pronouns"])
FAMILY = make_nouns("个", _TABLES["people"]["family"])
CONTAINERS = {noun.name: noun for noun in make_nouns("", COMBINATIONS["containers"])}

_ADJECTIVES = {
    name: tuple(adjective(english, chinese, nouns(" ".join(objects))) for english, chinese, *objects in rows)
    for name, rows in _TABLES["adjectives"].items()
}
PERSONAL = _ADJECTIVES["personal"]
FEELINGS = {feeling.name: feeling for feeling in _ADJECTIVES["feelings"]}
PREDICATES = _ADJECTIVES["attributes"] + _ADJECTIVES["predicate_only"]
QUALITIES, COLOURED = Matches(PREDICATES), Matches(_ADJECTIVES["colours"])
_COMPARED = "big small new old long sweet cheap expensive heavy fast tall cute smart young interesting beautiful"
COMPARED = Matches(adjective for adjective in PREDICATES if adjective.name in _COMPARED.split())


def group_by_noun(adjectives: Iterable[Adjective]) -> dict[str, list[Adjective]]:
    """Return the adjectives that fit each noun, by noun name."""
    by_noun: dict[str, list[Adjective]] = {}
    for each in adjectives:
        for noun in each.nouns:
            by_noun.setdefault(noun.name, []).append(each)
    return by_noun


ATTRIBUTES_BY_NOUN = group_by_noun(_ADJECTIVES["colours"] + _ADJECTIVES["attributes"])
# "new", "old" and "dirty" are uninformative for things bought yesterday.
REMARKS_BY_NOUN = group_by_noun(adjective for adjective in PREDICATES if adjective.name not in ("new", "old", "dirty"))

VERBS = {
    name: tuple(verb(english, chinese, nouns(" ".join(objects))) for english, chinese, *objects in rows)
    for name, rows in _TABLES["verbs"].items()
}
EAT, BUY, *_ = _DOING = VERBS["doing"]
SEE, *_ = _HAPPENING = VERBS["happening"]
LIKE, DRINK, (LIVE, GO, WANT) = VERBS["tastes"][0], VERBS["habits"][1], VERBS["plain"]
# Verbs with one object at a time, and verbs whose object does not exist before.
ONE_AT_A_TIME, CREATING = ("use", "drive", "ride", "wear"), ("write", "make")
DOING, DONE, GOING_ON = Matches(_DOING), Matches(_DOING + _HAPPENING), Matches(_DOING + VERBS["searching"])
COUNTED = Matches(verb for verb in (*_DOING, SEE) if verb.name not in ("use", "drive", "ride"))
IN_WHAT_QUESTIONS = Matches(verb for verb in _DOING + VERBS["searching"] if verb.name not in ("drive", "ride"))
REQUESTED = Matches(
    verb for verb in _DOING + _HAPPENING if verb.name in ("open", "close", "wash", "use", "eat", "read")
)
NOTED = Matches(verb for verb in _DOING + _HAPPENING if verb.name in ("buy", "borrow", "read", "watch", "see", "find"))
TASTES, HABITS, EXPERIENCES = Matches(VERBS["tastes"]), Matches(VERBS["habits"]), Matches(VERBS["experiences"])
TASTES_AND_HABITS, WISHES = Matches((LIKE, *VERBS["habits"])), Matches(VERBS["wishes"])
CHOOSING, GIVING, MOVES = Matches(VERBS["choosing"]), Matches(VERBS["giving"]), Matches(VERBS["moves"])

_ACTIVITIES = {
    name: tuple(activity(verb(english, chinese), *rest) for english, chinese, *rest in rows)
    for name, rows in _TABLES["activities"].items()
}
SKILLS, DUTIES = _ACTIVITIES["skills"], _ACTIVITIES["duties"]
ACTIVITIES = SKILLS[:10] + DUTIES + _ACTIVITIES["pastimes"]
activities: _Lookup[Verb] = _make_lookup(
    _TABLES["activity_groups"],
    {each.base.head: (each,) for members in _ACTIVITIES.values() for each in members},
)
locations: _Lookup[Location] = _make_lookup(
    _TABLES["location_groups"], {name: (location(*row),) for name, row in _TABLES["locations"].items()}
)
OUTINGS, LEISURE, TOWNS = locations("outings"), locations("leisure"), locations("towns")

_SPOTS = {
    name: tuple(spot for side, chinese, where, things in rows for spot in spots(side, chinese, where, nouns(things)))
    for name, rows in _TABLES["spots"].items()
}
SURFACES, SPOTS = Matches(_SPOTS["surfaces"]), Matches(_SPOTS["surfaces"] + _SPOTS["around"])
HOLDERS = Matches(_SPOTS["surfaces"] + _SPOTS["around"] + _SPOTS["having"])
