"""The adjectives and the nouns they fit; a comparative is given unless English says it with more."""

from collections.abc import Iterable

from attendo.recipes.builtin.matching import Matches
from attendo.recipes.builtin.nouns import nouns
from attendo.recipes.builtin.words import Adjective, adjective

COLOURS = (
    adjective("red", "红色", nouns("clothes cars public_cars cycles bags flowers pens cups umbrella")),
    adjective("blue", "蓝色", nouns("clothes cars cycles bags pens cups boats umbrella")),
    adjective("green", "绿色", nouns("clothes cycles bags pens cups boats chair")),
    adjective("yellow", "黄色", nouns("clothes cars public_cars bags flowers cups umbrella")),
    adjective("white", "白色", nouns("clothes cars flowers cups boats pets horse duck house")),
    adjective("black", "黑色", nouns("clothes cars bags pens devices umbrella sofa cat dog horse bird")),
)

DESCRIBING = (
    adjective("big bigger", "大", nouns("small_animals fruits bags trees furniture buildings ball")),
    adjective("small smaller", "小", nouns("small_animals bags trees cups boats table house city bridge")),
    adjective("new newer", "新", nouns("made_things books tools pens map toys song")),
    adjective("old older", "旧", nouns("made_things books guitar toys map photo")),
    adjective("sweet sweeter", "甜", nouns("fruits cake")),
    adjective("good better", "好", nouns("books films works student teacher doctor camera guitar")),
    adjective("beautiful", "漂亮", nouns("flowers clothes house city bridge girl woman bird horse watch gift")),
    adjective("interesting", "有趣", nouns("book novel magazine newspaper films story")),
    adjective("clean cleaner", "干净", nouns("coats cups public_cars")),
    adjective("fresh fresher", "新鲜", nouns("fruits vegetables eggs")),
    adjective("delicious", "好吃", nouns("fruits snacks")),
    adjective("cute cuter", "可爱", nouns("pets children monkey panda elephant duck pig toy")),
    adjective("smart smarter", "聪明", nouns("children student scientist lawyer engineer dog monkey elephant")),
    adjective(
        "young younger", "年轻", nouns("adults nurse driver teacher doctor engineer lawyer writer singer journalist")
    ),
    adjective(
        "friendly friendlier", "友好", nouns("adults driver nurse waiter farmer chef teacher neighbour colleague")
    ),
    adjective("famous", "有名", nouns("writer singer painter scientist lawyer chef novel films poem song")),
    adjective("comfortable", "舒服", nouns("bed sofa chair coat sweater shirt")),
    adjective("important", "重要", nouns("book letter photo map dictionary")),
)

# Before a noun these would need 很 and sound heavy, or say what nobody looks for, so they only follow "is".
PREDICATE_ONLY = (
    adjective("long longer", "长", nouns("skirt scarf ways")),
    adjective("boring", "无聊", nouns("book novel magazine newspaper films story")),
    adjective("expensive", "贵", nouns("made_things ticket guitar gift")),
    adjective("cheap cheaper", "便宜", nouns("made_things food_items tools pens ticket")),
    adjective("heavy heavier", "重", nouns("bags table bed sofa watermelon computer dictionary camera")),
    adjective("light lighter", "轻", nouns("bags phone computer camera umbrella bicycle")),
    adjective("fast faster", "快", nouns("vehicles public_cars horse")),
    adjective("slow slower", "慢", nouns("vehicles public_cars")),
    adjective("tall taller", "高", nouns("persons trees mountain")),
    adjective("dirty dirtier", "脏", nouns("coats cups furniture doors cars public_cars")),
    adjective("fat fatter", "胖", nouns("pets pig panda duck")),
    adjective("busy busier", "忙", nouns("jobs")),
)

PREDICATES = DESCRIBING + PREDICATE_ONLY
QUALITIES, COLOURED = Matches(PREDICATES), Matches(COLOURS)
_COMPARED = "big small new old long sweet cheap expensive heavy fast tall cute smart young interesting beautiful"
COMPARED = Matches(adjective for adjective in PREDICATES if adjective.name in _COMPARED.split())


def fitting(adjectives: Iterable[Adjective]) -> dict[str, list[Adjective]]:
    """For every noun, those of the adjectives that fit it."""
    found: dict[str, list[Adjective]] = {}
    for each in adjectives:
        for noun in each.nouns:
            found.setdefault(noun.name, []).append(each)
    return found


ATTRIBUTES_OF = fitting(COLOURS + DESCRIBING)
# What was bought yesterday is new: no news in that.
REMARKS_ON = fitting(adjective for adjective in PREDICATES if adjective.name not in ("new", "old", "dirty"))

FEELINGS = (
    adjective("tired", "累"),
    adjective("hungry hungrier", "饿"),
    adjective("thirsty thirstier", "渴"),
    adjective("busy busier", "忙"),
    adjective("happy happier", "高兴"),
    adjective("sad sadder", "难过"),
    adjective("angry angrier", "生气"),
    adjective("nervous", "紧张"),
)

PERSONAL = (
    adjective("tall taller", "高"),
    adjective("smart smarter", "聪明"),
    adjective("friendly friendlier", "友好"),
    adjective("busy busier", "忙"),
    adjective("tired", "累"),
)
