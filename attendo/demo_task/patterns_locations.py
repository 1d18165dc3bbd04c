"""Sentence patterns for locations: place, existence, 把, 被, company, transport."""

from random import Random

from attendo.demo_task import places, verbs
from attendo.demo_task.noun_phrases import NUMBERS, a, any_number, definite
from attendo.demo_task.nouns import nouns
from attendo.demo_task.people import FRIENDS, NAMES, PRONOUNS, possessive_phrase, someone, someone_named, someone_with
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.places import HOLDERS, LEISURE, OUTINGS, PAST_TIMES, SPOTS, SURFACES, TOWNS, WORKPLACES


def lying(dice: Random) -> Phrase:
    """The book is on the table. 这本 书 在 桌子 上"""
    spot, noun = SPOTS.sample(dice)
    what = definite(noun, dice)
    return weave("{what} is¹ {where}", "{what} 在¹ {where}", joins="what+where", what=what, where=spot.where)


def existence(dice: Random) -> Phrase:
    """There are three birds in the tree. 树 上 有 三 只 鸟"""
    spot, noun = HOLDERS.sample(dice)
    there, what = ("is", a(noun)) if dice.random() < 0.4 else ("are", any_number(noun, dice, NUMBERS[:4]))
    return weave(
        f"there¹ {there}¹ {{what}} {{where}}",
        "{where} 有¹ {what}",
        joins="what+where",
        what=what,
        where=spot.where,
    )


def putting(dice: Random) -> Phrase:
    """He put the cup on the table. 他 把 这个 杯子 放 在 桌子 上"""
    spot, noun = SURFACES.sample(dice)
    return weave(
        "{who} put¹ {what} {where}",
        "{who} 把 {what} 放¹ 在¹ {where}",
        joins="what+where",
        who=someone(dice),
        what=definite(noun, dice),
        where=spot.where,
    )


def passive(dice: Random) -> Phrase:
    """The fish was eaten by the cat. 这条 鱼 被 这只 猫 吃 了"""
    verb, doers, things = dice.choice(_PASSIVES)
    thing = dice.choice(things)
    return weave(
        "{what} was {verb} by¹ {who}",
        "{what} 被¹ {who} {verb}",
        joins="verb+what",
        what=definite(thing, dice),
        verb=verb,
        who=definite(dice.choice(doers), dice) if doers else someone_with(thing, dice, someone_named),
    )


# A verb without its own list of agents takes any person.
_PASSIVES = (
    (phrase("eaten", "吃 了"), nouns("cat dog"), nouns("fishes eggs cake hamburger sandwich")),
    (phrase("eaten", "吃 了"), nouns("monkey rabbit mouse"), nouns("apple banana pear peach carrot tomato")),
    (phrase("eaten", "吃 了"), (), nouns("food_items")),
    (phrase("broken", "打破 了"), (), nouns("cups window")),
    (phrase("stolen", "偷走 了"), (), nouns("vehicles devices bag key gift")),
    (phrase("borrowed", "借走 了"), (), nouns("books cycles pens umbrella camera guitar map")),
    (phrase("found", "找到 了"), (), nouns("small_things pets bag")),
    (phrase("sold", "卖掉 了"), (), nouns("vehicles devices furniture house horse cow")),
    (phrase("bought", "买走 了"), (), nouns("vehicles furniture house skirt coat guitar")),
)


def acting_somewhere(dice: Random) -> Phrase:
    """She reads books at home. 她 在 家 看 书"""
    who, (somewhere, doings) = someone(dice), dice.choice(_ACTIVITIES_BY_LOCATION)
    return weave(
        "{who} {verb} {where}",
        "{who} {where} {verb}",
        joins="verb+where",
        who=who,
        verb=dice.choice(doings).present(who),
        where=dice.choice(somewhere).at,
    )


_ACTIVITIES_BY_LOCATION = (
    (
        (places.HOME,),
        verbs.activities("cook sing dance chess piano guitar work study rest housework television music books"),
    ),
    ((places.HOME,), verbs.activities("breakfast lunch dinner tea coffee exercise sleep")),
    ((places.PARK,), verbs.activities("football basketball chess dance sing walk exercise chat rest guitar")),
    ((places.SCHOOL,), verbs.activities("football basketball tennis study piano lunch swim")),
    (WORKPLACES, verbs.activities("work")),
    ((places.LIBRARY,), verbs.activities("study books rest")),
    ((places.RESTAURANT,), verbs.activities("lunch dinner coffee tea chat")),
    ((places.OFFICE,), verbs.activities("work lunch coffee tea chat rest")),
    ((places.CLASSROOM,), verbs.activities("study books sing chat")),
    ((places.KITCHEN,), verbs.activities("cook breakfast lunch dinner chat")),
    ((places.BEDROOM,), verbs.activities("sleep rest")),
    ((places.GARDEN,), verbs.activities("walk rest books sing dance exercise tea")),
)


def living(dice: Random) -> Phrase:
    """My uncle lives in Beijing. 我 叔叔 住 在 北京"""
    who = someone(dice)
    live, where = verbs.LIVE.present(who), dice.choice(TOWNS).at
    return weave("{who} {live} {where}", "{who} {live} {where}", joins="who+where", who=who, live=live, where=where)


def company(dice: Random) -> Phrase:
    """She plays tennis with her friend. 她 和 她 的 朋友 一起 打 网球"""
    one = dice.choice(PRONOUNS)
    return weave(
        "{who} {verb} with¹ {friend}",
        "{who} 和¹ {friend} 一起¹ {verb}",
        joins="verb+friend",
        who=one.subject,
        verb=dice.choice(verbs.SHARED).present(one.subject),
        friend=possessive_phrase(one, dice.choice(FRIENDS)) if dice.random() < 0.6 else dice.choice(NAMES),
    )


def outing(dice: Random) -> Phrase:
    """Anna went to the park with Tom yesterday. 安娜 昨天 和 汤姆 一起 去 了 公园"""
    name, friend = dice.sample(NAMES, 2)
    return weave(
        "{who} {go} {where} with¹ {friend} {when}",
        "{who} {when} 和¹ {friend} 一起¹ {go} {where}",
        joins="where+friend",
        who=name if dice.random() < 0.4 else dice.choice(PRONOUNS).subject,
        go=verbs.GO.past,
        where=dice.choice(LEISURE).to,
        friend=friend,
        when=dice.choice(PAST_TIMES),
    )


def transport(dice: Random) -> Phrase:
    """I go to school by bus. 我 坐 公共汽车 去 学校"""
    who, (ways, goals) = someone(dice), dice.choice(_TRIPS)
    return weave(
        "{who} {go} {where} {how}",
        "{who} {how} {go} {where}",
        joins="where+how",
        who=who,
        go=verbs.GO.present(who),
        where=dice.choice(goals).to,
        how=dice.choice(ways),
    )


_BY_BUS, _BY_TAXI = phrase("by bus", "坐 公共汽车"), phrase("by taxi", "坐 出租车")
_BY_CAR, _BY_BICYCLE = phrase("by car", "坐 车"), phrase("by bicycle", "骑 自行车")
_BY_TRAIN, _BY_PLANE = phrase("by train", "坐 火车"), phrase("by plane", "坐 飞机")
_TRIPS = (
    ((_BY_BUS, _BY_TAXI, _BY_CAR, _BY_BICYCLE), OUTINGS),
    ((_BY_TRAIN, _BY_PLANE), TOWNS),
)
