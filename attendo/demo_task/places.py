"""Places and times: spots of things, locations of activities, and times."""

from dataclasses import dataclass, replace

from attendo.demo_task.nouns import Matches, nouns
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.words import Nouns


@dataclass(frozen=True)
class Location:
    """A location to go `to`, and to be or work `at`."""

    name: Phrase
    to: Phrase
    at: Phrase


@dataclass(frozen=True)
class Spot:
    """A spot for things: on the table, 桌子 上. The Chinese side word follows the noun."""

    where: Phrase
    nouns: Nouns


def location(english: str, chinese: str) -> Location:
    """Make a location from `at the bank` and `银行`, or `in the park` and `公园 里`."""
    preposition, *article, name = english.split()
    chinese_name, *side = chinese.split()
    the, inside = " ".join(article), "".join(side)
    noun = phrase(name, chinese_name)
    return Location(
        noun,
        weave(f"to {the} {{noun}}", "{noun}", head="noun", noun=noun),
        weave(
            f"{preposition}¹ {the} {{noun}}", f"在¹ {{noun}} {inside + '¹' if inside else ''}", head="noun", noun=noun
        ),
    )


def spots(preposition: str, chinese: str, where: str, things: str) -> tuple[Spot, ...]:
    """Make one spot for each `noun 名词` of `where`."""
    side = phrase(preposition, chinese)
    found = []
    for row in where.split(","):
        name, chinese_name = row.split()
        noun = phrase(name, chinese_name)
        found.append(
            Spot(weave("{side} the {noun}", "{noun} {side}", head="noun", side=side, noun=noun), nouns(things))
        )
    return tuple(found)


HOME, SCHOOL = location("at home", "家"), location("at school", "学校")
LIBRARY, RESTAURANT = location("at the library", "图书馆"), location("at the restaurant", "餐厅")
MUSEUM, MARKET = location("at the museum", "博物馆"), location("at the market", "市场")
CINEMA, SHOP = location("at the cinema", "电影院"), location("at the shop", "商店")
PARK, GARDEN = location("in the park", "公园 里"), location("in the garden", "花园 里")
OFFICE, CLASSROOM = location("in the office", "办公室 里"), location("in the classroom", "教室 里")
KITCHEN, BEDROOM = location("in the kitchen", "厨房 里"), location("in the bedroom", "卧室 里")
WORKPLACES = (
    SCHOOL,
    LIBRARY,
    RESTAURANT,
    location("at the hospital", "医院"),
    location("at the bank", "银行"),
    location("at the airport", "机场"),
    MUSEUM,
    location("at the station", "车站"),
    location("at the factory", "工厂"),
    location("at the university", "大学"),
)
OUTINGS = (
    *WORKPLACES,
    PARK,
    MARKET,
    CINEMA,
    SHOP,
)
LEISURE = (LIBRARY, RESTAURANT, MUSEUM, PARK, MARKET, CINEMA, SHOP)
TOWNS = (
    location("in Beijing", "北京"),
    location("in Shanghai", "上海"),
    location("in London", "伦敦"),
    location("in Paris", "巴黎"),
    location("in Tokyo", "东京"),
    location("in China", "中国"),
)

_SURFACES = (
    *spots("on", "上", "table 桌子, desk 书桌", "small_things cups bag fruits"),
    *spots("on", "上", "bed 床, sofa 沙发, chair 椅子", "reading phone clothes toys bag cat"),
    *spots("in", "里", "box 盒子, drawer 抽屉, bag 包", "reading pens phone camera watch key toy scarf"),
    *spots("in", "里", "fridge 冰箱", "food_items"),
)
_AROUND = (
    *spots("under", "下面", "table 桌子, bed 床, chair 椅子", "cat dog rabbit toys bags"),
    *spots("in", "上", "tree 树", "bird monkey"),
    *spots("under", "下面", "tree 树", "pets cow horse chair bicycle"),
    *spots("in", "里", "river 河", "duck fishes boats"),
    *spots("on", "上", "bridge 桥", "cars public_cars cycles"),
    *spots("in", "里", "garden 花园, park 公园", "flowers trees pets duck chair"),
    *spots("in", "里", "kitchen 厨房", "table chair knife cups fruits"),
    *spots("in", "里", "bedroom 卧室, classroom 教室, office 办公室", "table chair lamp computer flowers"),
    *spots("behind", "后面", "house 房子, school 学校", "mountain river road bridge trees"),
    *spots("behind", "后面", "door 门, sofa 沙发", "cat dog bags umbrella ball"),
    *spots("next to", "旁边", "window 窗户, door 门", "furniture bags cat dog bicycle"),
)
# Only for "there is": "the window is in the room" is unusual, and 在 路 上 is "on the way".
_HAVING = (
    *spots("in", "里", "kitchen 厨房, bedroom 卧室, classroom 教室, office 办公室", "doors"),
    *spots("on", "上", "road 路", "cars public_cars cycles"),
    *spots("next to", "旁边", "station 车站, school 学校", "cars public_cars"),
)
SPOTS, SURFACES, HOLDERS = Matches(_SURFACES + _AROUND), Matches(_SURFACES), Matches(_SURFACES + _AROUND + _HAVING)

PAST_TIMES = (
    phrase("yesterday", "昨天"),
    phrase("this morning", "今天 早上"),
    phrase("last night", "昨晚"),
    phrase("last week", "上周"),
    phrase("on Monday", "星期一"),
    phrase("on Friday", "星期五"),
    phrase("on Sunday", "星期天"),
)
FUTURE_TIMES = (
    phrase("tomorrow", "明天"),
    phrase("tonight", "今晚"),
    phrase("this weekend", "这个 周末"),
)
HABITUAL_TIMES = (
    phrase("every day", "每天"),
    phrase("every morning", "每天 早上"),
    phrase("every evening", "每天 晚上"),
    replace(weave("every¹ weekend²", "每个¹ 周末² 都¹"), head="every weekend"),
)
FREQUENCIES = (
    phrase("often", "经常"),
    phrase("always", "总是"),
    phrase("never", "从不"),
    phrase("sometimes", "有时"),
    phrase("usually", "通常"),
    phrase("rarely", "很少"),
)
