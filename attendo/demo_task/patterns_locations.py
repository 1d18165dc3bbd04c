"""Sentence patterns for locations: place, existence, 把, 被, company, transport."""

from random import Random

from attendo.demo_task import lexicon
from attendo.demo_task.lexicon import COMBINATIONS, GO, NAMES, NUMBERS, PHRASES, PRONOUNS, TOWNS, activities, nouns
from attendo.demo_task.noun_phrases import a, any_number, definite
from attendo.demo_task.people import FRIENDS, possessive_phrase, someone, someone_named, someone_with
from attendo.demo_task.phrase import Parts, pattern, phrase


@pattern("lying", "{what} is¹ {where}", "{what} 在¹ {where}", "what+where")
def lying(dice: Random) -> Parts:
    """The book is on the table. 这本 书 在 桌子 上"""
    spot, noun = lexicon.SPOTS.sample(dice)
    return {"what": definite(noun, dice), "where": spot.where}


@pattern("existence", "{there} {what} {where}", "{where} {there} {what}", "what+where")
def existence(dice: Random) -> Parts:
    """There are three birds in the tree. 树 上 有 三 只 鸟"""
    spot, noun = lexicon.HOLDERS.sample(dice)
    there, what = ("there is", a(noun)) if dice.random() < 0.4 else ("there are", any_number(noun, dice, NUMBERS[:4]))
    return {"there": phrase(there, "有"), "what": what, "where": spot.where}


@pattern("putting", "{who} put¹ {what} {where}", "{who} 把 {what} 放¹ 在¹ {where}", "what+where")
def putting(dice: Random) -> Parts:
    """He put the cup on the table. 他 把 这个 杯子 放 在 桌子 上"""
    spot, noun = lexicon.SURFACES.sample(dice)
    return {"who": someone(dice), "what": definite(noun, dice), "where": spot.where}


@pattern("passive", "{what} was {verb} by¹ {who}", "{what} 被¹ {who} {verb}", "verb+what")
def passive(dice: Random) -> Parts:
    """The fish was eaten by the cat. 这条 鱼 被 这只 猫 吃 了"""
    verb, agents, things = dice.choice(_PASSIVES)
    thing = dice.choice(things)
    what = definite(thing, dice)
    who = definite(dice.choice(agents), dice) if agents else someone_with(thing, dice, someone_named)
    return {"what": what, "verb": verb, "who": who}


_PASSIVES = tuple(
    (phrase(english, chinese), nouns(agents), nouns(things))
    for english, chinese, agents, things in COMBINATIONS["passives"]
)


@pattern("acting somewhere", "{who} {verb} {where}", "{who} {where} {verb}", "verb+where")
def acting_somewhere(dice: Random) -> Parts:
    """She reads books at home. 她 在 家 看 书"""
    who, (somewhere, verbs) = someone(dice), dice.choice(_ACTIVITIES_BY_LOCATION)
    return {"who": who, "verb": dice.choice(verbs).present(who), "where": dice.choice(somewhere).at}


_ACTIVITIES_BY_LOCATION = tuple(
    (lexicon.locations(somewhere), activities(doings)) for somewhere, doings in COMBINATIONS["activities_by_location"]
)


@pattern("acting somewhere", "{who} {live} {where}", "{who} {live} {where}", "who+where")
def living(dice: Random) -> Parts:
    """My uncle lives in Beijing. 我 叔叔 住 在 北京"""
    who = someone(dice)
    return {"who": who, "live": lexicon.LIVE.present(who), "where": dice.choice(TOWNS).at}


@pattern("company", "{who} {verb} with¹ {friend}", "{who} 和¹ {friend} 一起¹ {verb}", "verb+friend")
def company(dice: Random) -> Parts:
    """She plays tennis with her friend. 她 和 她 的 朋友 一起 打 网球"""
    one = dice.choice(PRONOUNS)
    verb = dice.choice(activities("shared")).present(one.subject)
    friend = possessive_phrase(one, dice.choice(FRIENDS)) if dice.random() < 0.6 else dice.choice(NAMES)
    return {"who": one.subject, "verb": verb, "friend": friend}


@pattern(
    "company",
    "{who} {go} {where} with¹ {friend} {when}",
    "{who} {when} 和¹ {friend} 一起¹ {go} {where}",
    "where+friend",
)
def outing(dice: Random) -> Parts:
    """Anna went to the park with Tom yesterday. 安娜 昨天 和 汤姆 一起 去 了 公园"""
    name, friend = dice.sample(NAMES, 2)
    who = name if dice.random() < 0.4 else dice.choice(PRONOUNS).subject
    where, when = dice.choice(lexicon.LEISURE).to, dice.choice(lexicon.PAST_TIMES)
    return {"who": who, "go": GO.past, "where": where, "friend": friend, "when": when}


@pattern("transport", "{who} {go} {where} {how}", "{who} {how} {go} {where}", "where+how")
def transport(dice: Random) -> Parts:
    """I go to school by bus. 我 坐 公共汽车 去 学校"""
    who, (vehicles, goals) = someone(dice), dice.choice(_TRIPS)
    return {"who": who, "go": GO.present(who), "where": dice.choice(goals).to, "how": dice.choice(vehicles)}


_TRIPS = ((PHRASES["local_transport"], lexicon.OUTINGS), (PHRASES["long_transport"], TOWNS))
