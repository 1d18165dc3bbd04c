"""Sentence patterns for descriptions: greetings, identity, qualities, comparison, possession."""

from functools import cache
from itertools import product
from random import Random

from attendo.demo_task import lexicon
from attendo.demo_task.lexicon import COMPARED, DEGREES, NAMES, PHRASES, QUALITIES, nouns
from attendo.demo_task.noun_phrases import a, indefinite, plain_definite, that, the
from attendo.demo_task.people import (
    JOBS,
    a_job,
    is_group,
    owner,
    relative,
    role,
    someone,
    someone_known,
    someone_with,
    two_people,
)
from attendo.demo_task.phrase import Parts, Phrase, pattern, phrase
from attendo.demo_task.words import Adjective, Noun, Nouns


@pattern("greeting", "{hello} {whom}", "{hello} {whom}", "hello+whom")
def greeting(dice: Random) -> Parts:
    """Hello world. 你好 世界"""
    hello, whom = dice.choice(_GREETINGS)
    return {"hello": hello, "whom": whom}


_DAY, _EVENING = PHRASES["day_greetings"], PHRASES["evening_greetings"]
_GREETINGS = (
    *product((*_DAY, *_EVENING, phrase("goodbye", "再见")), NAMES),
    *product((*_DAY, *_EVENING), (phrase("world", "世界"),)),
    *product(_DAY, (town.name for town in lexicon.TOWNS)),
)


@pattern("identity", "{who} be:who¹ {what}", "{who} 是¹ {what}", "who+what")
def identity(dice: Random) -> Parts:
    """I am a student. 我 是 一 个 学生"""
    who = someone_known(dice)
    job = dice.choice(_FIRST_PERSON_JOBS) if who.head == "I" else a_job(who, dice)
    return {"who": who, "what": job.many if is_group(who) else a(job)}


# 位 is honorific and not used for oneself.
_FIRST_PERSON_JOBS = tuple(job for job in JOBS if job.measure != "位")


@pattern("identity", "{who} be:who¹ not² {what}", "{who} 不² 是¹ {what}", "who+what")
def identity_negation(dice: Random) -> Parts:
    """She is not a doctor. 她 不 是 医生"""
    who = someone_known(dice)
    return {"who": who, "what": role(who, a_job(who, dice))}


@pattern("quality", "{what} is {very} {how}", "{what} {very} {how}", "how+what")
def quality(dice: Random) -> Parts:
    """The cat is very big. 这只 猫 很 大"""
    adjective, noun = QUALITIES.sample(dice)
    return {"very": _degree(adjective, dice), "what": plain_definite(noun, dice), "how": adjective.plain}


def _degree(adjective: Adjective, dice: Random) -> Phrase:
    """Return very, really or not. 不 does not combine with 有趣 and 有名, which contain the verb 有."""
    return dice.choice(DEGREES[:2] if adjective.plain.chinese[0].startswith("有") else DEGREES)


@pattern("quality", "{what} is¹ {how}", "{what} 是¹ {how}", "how+what")
def colour(dice: Random) -> Parts:
    """The coat is red. 这件 外套 是 红色 的"""
    adjective, noun = lexicon.COLOURED.sample(dice)
    return {"what": plain_definite(noun, dice), "how": adjective.before}


@pattern("feeling", "{who} be:who {very} {how}", "{who} {very} {how}", "who+how")
def feeling(dice: Random) -> Parts:
    """They are very tired. 他们 很 累"""
    return {
        "very": dice.choice(DEGREES),
        "who": someone(dice),
        "how": dice.choice(list(lexicon.FEELINGS.values())).plain,
    }


@pattern("comparison", "{one} is {more} than¹ {other}", "{one} 比¹ {other} {more}", "one+more")
def comparison(dice: Random) -> Parts:
    """The cat is bigger than that dog. 这只 猫 比 那只 狗 大"""
    adjective, noun = COMPARED.sample(dice)
    other = that(dice.choice(_comparable_nouns(adjective, noun)))
    return {"one": the(noun), "other": other, "more": adjective.comparative}


@pattern("comparison of people", "{who} be:who {more} than¹ {whom}", "{who} 比¹ {whom} {more}", "who+more+whom")
def comparison_of_people(dice: Random) -> Parts:
    """She is taller than me. 她 比 我 高"""
    one, other = two_people(dice)
    who = one.subject if dice.random() < 0.5 else relative(dice)
    whom = other.object if dice.random() < 0.5 else dice.choice(NAMES)
    return {"who": who, "whom": whom, "more": dice.choice(lexicon.PERSONAL).comparative}


@pattern("comparison of people", "{one} is as¹ {how} as² {other}", "{one} 和² {other} 一样¹ {how}", "one+how")
def equality(dice: Random) -> Parts:
    """The cat is as big as that dog. 这只 猫 和 那只 狗 一样 大"""
    adjective, noun = COMPARED.sample(dice)
    other = that(dice.choice(_comparable_nouns(adjective, noun)))
    return {"one": the(noun), "other": other, "how": adjective.plain}


@cache
def _comparable_nouns(adjective: Adjective, noun: Noun) -> Nouns:
    """Return nouns to compare with: of the same class, such as car and truck; for size and tools only the same noun."""
    if adjective.name in ("big", "small") or noun in lexicon.CLASSES["tools"]:
        return (noun,)
    members = next(members for members in lexicon.CLASSES.values() if noun in members)
    return tuple(other for other in members if other in adjective.nouns)


@pattern("ownership", "{who} have:who¹ {what}", "{who} 有¹ {what}", "who+what")
def ownership(dice: Random) -> Parts:
    """She has two dogs. 她 有 两 只 狗"""
    noun = dice.choice(_OWNED)
    return {"who": someone_with(noun, dice), "what": indefinite(noun, dice)}


_OWNED = nouns("owned")


@pattern("belonging", "{whose} {what} is {very} {how}", "{whose} {what} {very} {how}", "how+what")
def belonging(dice: Random) -> Parts:
    """My mother's car is very old. 我 妈妈 的 车 很 旧"""
    adjective, noun = QUALITIES.sample(dice)
    while noun not in _OWNED:
        adjective, noun = QUALITIES.sample(dice)
    return {"very": _degree(adjective, dice), "whose": owner(dice), "what": noun.one, "how": adjective.plain}
