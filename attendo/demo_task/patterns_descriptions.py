"""Sentence patterns for descriptions: greetings, identity, qualities, comparison, possession."""

from itertools import product
from random import Random

from attendo.demo_task.noun_phrases import a, indefinite, plain_definite, that, the
from attendo.demo_task.nouns import CLASSES, COLOURED, COMPARED, FEELINGS, PERSONAL, PREDICATES, QUALITIES, nouns
from attendo.demo_task.people import (
    NAMES,
    be,
    have,
    is_group,
    owner,
    relative,
    someone,
    someone_known,
    someone_with,
    two_people,
)
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.places import TOWNS
from attendo.demo_task.words import Adjective, Noun, Nouns, article

JOBS = nouns("jobs")


def greeting(dice: Random) -> Phrase:
    """Hello world. 你好 世界"""
    hello, whom = dice.choice(_GREETINGS)
    return weave("{hello} {whom}", "{hello} {whom}", joins="hello+whom", hello=hello, whom=whom)


_DAY = (phrase("hello", "你好"), phrase("good morning", "早上好"))
_EVENING = (phrase("good evening", "晚上好"), phrase("good night", "晚安"))
_GREETINGS = (
    *product((*_DAY, *_EVENING, phrase("goodbye", "再见")), NAMES),
    *product((*_DAY, *_EVENING), (phrase("world", "世界"),)),
    *product(_DAY, (town.name for town in TOWNS)),
)


def identity(dice: Random) -> Phrase:
    """I am a student. 我 是 一 个 学生"""
    who = someone_known(dice)
    job = dice.choice(_FIRST_PERSON_JOBS) if who.head == "I" else a_job(who, dice)
    what = job.many if is_group(who) else a(job)
    return weave(f"{{who}} {be(who)}¹ {{what}}", "{who} 是¹ {what}", joins="who+what", who=who, what=what)


# 位 is honorific and not used for oneself.
_FIRST_PERSON_JOBS = tuple(job for job in JOBS if job.measure != "位")


def identity_negation(dice: Random) -> Phrase:
    """She is not a doctor. 她 不 是 医生"""
    who = someone_known(dice)
    what = role(who, a_job(who, dice))
    return weave(f"{{who}} {be(who)}¹ not² {{what}}", "{who} 不² 是¹ {what}", joins="who+what", who=who, what=what)


def a_job(who: Phrase, dice: Random) -> Noun:
    """Return a job, but not "student" for a classmate (redundant) or a grandparent (implausible)."""
    grown_up = who.head in ("classmate", "grandmother", "grandfather")
    return dice.choice(_GROWN_UP_JOBS if grown_up else JOBS)


_GROWN_UP_JOBS = tuple(job for job in JOBS if job.name != "student")


def role(who: Phrase, job: Noun) -> Phrase:
    """a doctor, 医生: Chinese uses a measure word for a profession that is affirmed, not for one in doubt."""
    if is_group(who):
        return job.many
    return weave(f"{article(job.name)} {{noun}}", "{noun}", head="noun", noun=job.one)


def quality(dice: Random) -> Phrase:
    """The cat is very big. 这只 猫 很 大"""
    adjective, noun = QUALITIES.sample(dice)
    very, hen = _degree(adjective, dice)
    what, how = plain_definite(noun, dice), adjective.plain
    return weave(f"{{what}} is {very} {{how}}", f"{{what}} {hen} {{how}}", joins="how+what", what=what, how=how)


def _degree(adjective: Adjective, dice: Random) -> tuple[str, str]:
    """Return very, really or not. 不 does not combine with 有趣 and 有名, which contain the verb 有."""
    return dice.choice(_DEGREES[:2] if adjective.plain.chinese[0].startswith("有") else _DEGREES)


_DEGREES = (("very¹", "很¹"), ("really¹", "真的¹ 很¹"), ("not¹", "不¹"))


def colour(dice: Random) -> Phrase:
    """The coat is red. 这件 外套 是 红色 的"""
    adjective, noun = COLOURED.sample(dice)
    what, how = plain_definite(noun, dice), adjective.before
    return weave("{what} is¹ {how}", "{what} 是¹ {how}", joins="how+what", what=what, how=how)


def feeling(dice: Random) -> Phrase:
    """They are very tired. 他们 很 累"""
    very, hen = dice.choice(_DEGREES)
    who, how = someone(dice), dice.choice(FEELINGS).plain
    return weave(f"{{who}} {be(who)} {very} {{how}}", f"{{who}} {hen} {{how}}", joins="who+how", who=who, how=how)


def comparison(dice: Random) -> Phrase:
    """The cat is bigger than that dog. 这只 猫 比 那只 狗 大"""
    adjective, noun = COMPARED.sample(dice)
    return weave(
        "{one} is {more} than¹ {other}",
        "{one} 比¹ {other} {more}",
        joins="one+more",
        one=the(noun),
        other=that(dice.choice(_COMPARABLE[noun.name, adjective.name])),
        more=adjective.comparative,
    )


def equality(dice: Random) -> Phrase:
    """The cat is as big as that dog. 这只 猫 和 那只 狗 一样 大"""
    adjective, noun = COMPARED.sample(dice)
    return weave(
        "{one} is as¹ {how} as² {other}",
        "{one} 和² {other} 一样¹ {how}",
        joins="one+how",
        one=the(noun),
        other=that(dice.choice(_COMPARABLE[noun.name, adjective.name])),
        how=adjective.plain,
    )


def _comparable_nouns(adjective: Adjective, noun: Noun, members: Nouns) -> Nouns:
    """Return nouns to compare with: of the same class, such as car and truck; for size and tools only the same noun."""
    if adjective.name in ("big", "small") or noun in CLASSES["tools"]:
        return (noun,)
    return tuple(other for other in members if other in adjective.nouns)


_COMPARABLE = {
    (noun.name, adjective.name): _comparable_nouns(adjective, noun, members)
    for adjective in PREDICATES
    for members in CLASSES.values()
    for noun in members
}


def comparison_of_people(dice: Random) -> Phrase:
    """She is taller than me. 她 比 我 高"""
    one, other = two_people(dice)
    who = one.subject if dice.random() < 0.5 else relative(dice)
    return weave(
        f"{{who}} {be(who)} {{more}} than¹ {{whom}}",
        "{who} 比¹ {whom} {more}",
        joins="who+more+whom",
        who=who,
        whom=other.object if dice.random() < 0.5 else dice.choice(NAMES),
        more=dice.choice(PERSONAL).comparative,
    )


def ownership(dice: Random) -> Phrase:
    """She has two dogs. 她 有 两 只 狗"""
    noun = dice.choice(_OWNED)
    who, what = someone_with(noun, dice), indefinite(noun, dice)
    return weave(f"{{who}} {have(who)}¹ {{what}}", "{who} 有¹ {what}", joins="who+what", who=who, what=what)


_OWNED = nouns("pets made_things books pens tools map photo toys horse house")


def belonging(dice: Random) -> Phrase:
    """My mother's car is very old. 我 妈妈 的 车 很 旧"""
    adjective, noun = QUALITIES.sample(dice)
    while noun not in _OWNED:
        adjective, noun = QUALITIES.sample(dice)
    very, hen = _degree(adjective, dice)
    return weave(
        f"{{whose}} {{what}} is {very} {{how}}",
        f"{{whose}} {{what}} {hen} {{how}}",
        joins="how+what",
        whose=owner(dice),
        what=noun.one,
        how=adjective.plain,
    )
