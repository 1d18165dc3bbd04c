"""Sentence patterns for questions. Chinese keeps the word order of the answer; English moves words to the front.

？ is linked to the question mark. 吗 has no English counterpart.
"""

from random import Random

from attendo.demo_task import verbs
from attendo.demo_task.noun_phrases import definite, the
from attendo.demo_task.nouns import QUALITIES, nouns
from attendo.demo_task.patterns_descriptions import a_job, role
from attendo.demo_task.people import be, do, someone_else, someone_known_else, someone_with
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.places import OUTINGS, TOWNS


def taste_question(dice: Random) -> Phrase:
    """Do you like cats? 你 喜欢 猫 吗 ？"""
    who, (verb, noun) = someone_else(dice), verbs.TASTES_AND_HABITS.sample(dice)
    return weave(
        f"{do(who)}¹ {{who}} {{verb}} {{what}} ?²",
        "{who} {verb} {what} 吗 ？²",
        joins="verb+what",
        who=who,
        verb=verb.base,
        what=noun.many,
    )


def wish_question(dice: Random) -> Phrase:
    """Do you like the red book? 你 喜欢 这本 红色 的 书 吗 ？"""
    who, (verb, noun) = someone_else(dice), verbs.WISHES.sample(dice)
    return weave(
        f"{do(who)}¹ {{who}} {{verb}} {{what}} ?²",
        "{who} {verb} {what} 吗 ？²",
        joins="verb+what",
        who=who,
        verb=verb.base,
        what=definite(noun, dice),
    )


def past_question(dice: Random) -> Phrase:
    """Did you buy the book? 你 买 了 这本 书 吗 ？"""
    verb, noun = verbs.DONE.sample(dice)
    return weave(
        "did¹ {who} {verb} {what} ?²",
        "{who} {verb} 了 {what} 吗 ？²",
        joins="verb+what",
        who=someone_with(noun, dice, someone_else),
        verb=verb.base,
        what=definite(noun, dice),
    )


def quality_question(dice: Random) -> Phrase:
    """Is the cat big? 这只 猫 大 吗 ？"""
    adjective, noun = QUALITIES.sample(dice)
    what = the(noun)
    return weave("is¹ {what} {how} ?²", "{what} {how} 吗 ？²", joins="how+what", what=what, how=adjective.plain)


def identity_question(dice: Random) -> Phrase:
    """Are you a student? 你 是 学生 吗 ？"""
    who = someone_known_else(dice)
    what = role(who, a_job(who, dice))
    return weave(f"{be(who)}¹ {{who}} {{what}} ?²", "{who} 是¹ {what} 吗 ？²", joins="who+what", who=who, what=what)


def ability_question(dice: Random) -> Phrase:
    """Can you swim? 你 会 游泳 吗 ？"""
    skill = dice.choice(verbs.SKILLS).base
    return weave(
        "can¹ {who} {skill} ?²", "{who} 会¹ {skill} 吗 ？²", joins="who+skill", who=someone_else(dice), skill=skill
    )


def who_did(dice: Random) -> Phrase:
    """Who bought the book? 谁 买 了 这本 书 ？"""
    verb, noun = verbs.DONE.sample(dice)
    what = definite(noun, dice)
    return weave("who¹ {verb} {what} ?²", "谁¹ {verb} {what} ？²", joins="verb+what", verb=verb.past, what=what)


def what_done(dice: Random) -> Phrase:
    """What did you buy? 你 买 了 什么 ？"""
    who, (verb, _) = someone_else(dice), verbs.IN_WHAT_QUESTIONS.sample(dice)
    return weave("what¹ did² {who} {do} ?³", "{who} {do} 了 什么¹ ？³", joins="who+do", who=who, do=verb.base)


def what_going_on(dice: Random) -> Phrase:
    """What are you reading? 你 正在 看 什么 ？"""
    who, (verb, _) = someone_else(dice), verbs.IN_WHAT_QUESTIONS.sample(dice)
    return weave(
        f"what¹ {be(who)}² {{who}} {{do}} ?³", "{who} 正在² {do} 什么¹ ？³", joins="who+do", who=who, do=verb.ing
    )


def where_living(dice: Random) -> Phrase:
    """Where do you live? 你 住 在 哪里 ？"""
    who, live = someone_else(dice), verbs.LIVE.base
    return weave(
        f"where¹ {do(who)} {{who}} {{live}} ?²", "{who} {live} 在¹ 哪里¹ ？²", joins="who+live", who=who, live=live
    )


def where_acting(dice: Random) -> Phrase:
    """Where does she work? 她 在 哪里 工作 ？"""
    who, work = someone_else(dice), dice.choice(verbs.IN_WHERE_QUESTIONS).base
    return weave(
        f"where¹ {do(who)} {{who}} {{work}} ?²", "{who} 在¹ 哪里¹ {work} ？²", joins="who+work", who=who, work=work
    )


def where_lying(dice: Random) -> Phrase:
    """Where is the book? 这本 书 在 哪里 ？"""
    what, where = definite(dice.choice(_SOUGHT), dice), phrase("where", "哪里")
    return weave("{where} is¹ {what} ?²", "{what} 在¹ {where} ？²", joins="where+what", where=where, what=what)


_SOUGHT = nouns("small_things pets bags vehicles computer persons")


def going_when(dice: Random) -> Phrase:
    """When do you go to school? 你 什么时候 去 学校 ？"""
    who = someone_else(dice)
    english, chinese = dice.choice((("when¹", "什么时候¹"), ("why¹", "为什么¹"), ("how¹", "怎么¹")))
    return weave(
        f"{english} {do(who)} {{who}} {{go}} {{where}} ?²",
        f"{{who}} {chinese} {{go}} {{where}} ？²",
        joins="who+where",
        who=who,
        go=verbs.GO.base,
        where=dice.choice(OUTINGS + TOWNS).to,
    )


def why_liking(dice: Random) -> Phrase:
    """Why does he like cats? 他 为什么 喜欢 猫 ？"""
    who, (verb, noun) = someone_else(dice), verbs.TASTES.sample(dice)
    return weave(
        f"why¹ {do(who)} {{who}} {{verb}} {{what}} ?²",
        "{who} 为什么¹ {verb} {what} ？²",
        joins="verb+what",
        who=who,
        verb=verb.base,
        what=noun.many,
    )


def how_many(dice: Random) -> Phrase:
    """How many apples did you buy? 你 买 了 几 个 苹果 ？"""
    verb, noun = verbs.COUNTED.sample(dice)
    return weave(
        "how¹ many¹ {what} did² {who} {verb} ?³",
        f"{{who}} {{verb}} 了 几¹ {noun.measure}@what {{what}} ？³",
        joins="verb+what",
        what=noun.many,
        who=someone_else(dice),
        verb=verb.base,
    )


def which(dice: Random) -> Phrase:
    """Which book do you like? 你 喜欢 哪本 书 ？"""
    who, (verb, noun) = someone_else(dice), verbs.CHOOSING.sample(dice)
    return weave(
        f"which¹ {{what}} {do(who)} {{who}} {{verb}} ?²",
        f"{{who}} {{verb}} 哪{noun.measure}¹@what {{what}} ？²",
        joins="verb+what",
        what=noun.one,
        who=who,
        verb=verb.base,
    )
