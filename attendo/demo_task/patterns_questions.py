"""Sentence patterns for questions. Chinese keeps the word order of the answer; English moves words to the front.

？ is linked to the question mark. 吗 has no English counterpart.
"""

from random import Random

from attendo.demo_task import lexicon
from attendo.demo_task.lexicon import GO, LIVE, OUTINGS, PHRASES, TOWNS, activities, nouns
from attendo.demo_task.noun_phrases import definite, several, the
from attendo.demo_task.noun_phrases import which as which_one
from attendo.demo_task.people import a_job, role, someone_else, someone_known_else, someone_with
from attendo.demo_task.phrase import Parts, pattern, phrase


@pattern("yes or no", "do:who¹ {who} {verb} {what} ?²", "{who} {verb} {what} 吗 ？²", "verb+what")
def taste_question(dice: Random) -> Parts:
    """Do you like cats? 你 喜欢 猫 吗 ？"""
    who, (verb, noun) = someone_else(dice), lexicon.TASTES_AND_HABITS.sample(dice)
    return {"who": who, "verb": verb.base, "what": noun.many}


@pattern("yes or no", "do:who¹ {who} {verb} {what} ?²", "{who} {verb} {what} 吗 ？²", "verb+what")
def wish_question(dice: Random) -> Parts:
    """Do you like the red book? 你 喜欢 这本 红色 的 书 吗 ？"""
    who, (verb, noun) = someone_else(dice), lexicon.WISHES.sample(dice)
    return {"who": who, "verb": verb.base, "what": definite(noun, dice)}


@pattern("yes or no, past", "did¹ {who} {verb} {what} ?²", "{who} {verb} 了 {what} 吗 ？²", "verb+what")
def past_question(dice: Random) -> Parts:
    """Did you buy the book? 你 买 了 这本 书 吗 ？"""
    verb, noun = lexicon.DONE.sample(dice)
    return {"who": someone_with(noun, dice, someone_else), "verb": verb.base, "what": definite(noun, dice)}


@pattern("yes or no, being", "is¹ {what} {how} ?²", "{what} {how} 吗 ？²", "how+what")
def quality_question(dice: Random) -> Parts:
    """Is the cat big? 这只 猫 大 吗 ？"""
    adjective, noun = lexicon.QUALITIES.sample(dice)
    return {"what": the(noun), "how": adjective.plain}


@pattern("yes or no, being", "be:who¹ {who} {what} ?²", "{who} 是¹ {what} 吗 ？²", "who+what")
def identity_question(dice: Random) -> Parts:
    """Are you a student? 你 是 学生 吗 ？"""
    who = someone_known_else(dice)
    return {"who": who, "what": role(who, a_job(who, dice))}


@pattern("yes or no, being", "can¹ {who} {skill} ?²", "{who} 会¹ {skill} 吗 ？²", "who+skill")
def ability_question(dice: Random) -> Parts:
    """Can you swim? 你 会 游泳 吗 ？"""
    return {"skill": dice.choice(lexicon.SKILLS).base, "who": someone_else(dice)}


@pattern("who", "who¹ {verb} {what} ?²", "谁¹ {verb} {what} ？²", "verb+what")
def who_did(dice: Random) -> Parts:
    """Who bought the book? 谁 买 了 这本 书 ？"""
    verb, noun = lexicon.DONE.sample(dice)
    return {"verb": verb.past, "what": definite(noun, dice)}


@pattern("what", "what¹ did² {who} {do} ?³", "{who} {do} 了 什么¹ ？³", "who+do")
def what_done(dice: Random) -> Parts:
    """What did you buy? 你 买 了 什么 ？"""
    who, (verb, _) = someone_else(dice), lexicon.IN_WHAT_QUESTIONS.sample(dice)
    return {"who": who, "do": verb.base}


@pattern("what", "what¹ be:who² {who} {do} ?³", "{who} 正在² {do} 什么¹ ？³", "who+do")
def what_going_on(dice: Random) -> Parts:
    """What are you reading? 你 正在 看 什么 ？"""
    who, (verb, _) = someone_else(dice), lexicon.IN_WHAT_QUESTIONS.sample(dice)
    return {"who": who, "do": verb.ing}


@pattern("where", "where¹ do:who {who} {live} ?²", "{who} {live} 在¹ 哪里¹ ？²", "who+live")
def where_living(dice: Random) -> Parts:
    """Where do you live? 你 住 在 哪里 ？"""
    return {"who": someone_else(dice), "live": LIVE.base}


@pattern("where", "where¹ do:who {who} {work} ?²", "{who} 在¹ 哪里¹ {work} ？²", "who+work")
def where_acting(dice: Random) -> Parts:
    """Where does she work? 她 在 哪里 工作 ？"""
    return {"who": someone_else(dice), "work": dice.choice(activities("in_where_questions")).base}


@pattern("where", "{where} is¹ {what} ?²", "{what} 在¹ {where} ？²", "where+what")
def where_lying(dice: Random) -> Parts:
    """Where is the book? 这本 书 在 哪里 ？"""
    return {"where": phrase("where", "哪里"), "what": definite(dice.choice(nouns("sought")), dice)}


@pattern("when, why, how", "{when} do:who {who} {go} {where} ?²", "{who} {when} {go} {where} ？²", "who+where")
def going_when(dice: Random) -> Parts:
    """When do you go to school? 你 什么时候 去 学校 ？"""
    who, when = someone_else(dice), dice.choice(PHRASES["questions"])
    return {"who": who, "when": when, "go": GO.base, "where": dice.choice(OUTINGS + TOWNS).to}


@pattern("when, why, how", "why¹ do:who {who} {verb} {what} ?²", "{who} 为什么¹ {verb} {what} ？²", "verb+what")
def why_liking(dice: Random) -> Parts:
    """Why does he like cats? 他 为什么 喜欢 猫 ？"""
    who, (verb, noun) = someone_else(dice), lexicon.TASTES.sample(dice)
    return {"who": who, "verb": verb.base, "what": noun.many}


@pattern("how many, which", "{what} did² {who} {verb} ?³", "{who} {verb} 了 {what} ？³", "verb+what")
def how_many(dice: Random) -> Parts:
    """How many apples did you buy? 你 买 了 几 个 苹果 ？"""
    verb, noun = lexicon.COUNTED.sample(dice)
    what = several(phrase("how many", "几"), noun, joins="")
    return {"what": what, "who": someone_else(dice), "verb": verb.base}


@pattern("how many, which", "{what} do:who {who} {verb} ?²", "{who} {verb} {what} ？²", "verb+what")
def which(dice: Random) -> Parts:
    """Which book do you like? 你 喜欢 哪本 书 ？"""
    who, (verb, noun) = someone_else(dice), lexicon.CHOOSING.sample(dice)
    return {"what": which_one(noun), "who": who, "verb": verb.base}
